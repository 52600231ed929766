/** What draws the picture: by WebGL, or pixel by pixel where that would be slow. */
import type { Camera, Plan } from "./geometry";
import type { FleetModel } from "./model";
import type { Palette } from "./palette";

export interface Scene {
  model: FleetModel;
  plan: Plan;
  camera: Camera;
  palette: Palette;
  /** Whether a search is active: what does not match is dimmed. */
  searching: boolean;
}

export interface Painter {
  readonly kind: "gl" | "2d";
  /** Device pixels for a CSS pixel. */
  readonly ratio: number;
  /** Set the size in CSS pixels. */
  resize(width: number, height: number): void;
  /**
   * Draw. `dirty`: nodes whose Pods have changed since the last drawing, null: all. `moved`: anything else has changed,
   * such as the camera.
   */
  draw(scene: Scene, dirty: ReadonlySet<number> | null, moved: boolean): void;
  dispose(): void;
}

/** Below this size of a cell in device pixels, a node is one colour with a dot. */
export const SMALLEST = 1;

const SOFTWARE = /swiftshader|llvmpipe|softpipe|software|basic render|mesa offscreen/i;

/** Whether WebGL 2 is there and draws in hardware. */
export function hasFastGl(): boolean {
  const gl = document.createElement("canvas").getContext("webgl2", { failIfMajorPerformanceCaveat: true });
  if (!gl) return false;
  const info = gl.getExtension("WEBGL_debug_renderer_info");
  const name = String(gl.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : gl.RENDERER));
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return !SOFTWARE.test(name);
}
