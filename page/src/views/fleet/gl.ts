/** Draws by WebGL 2: the states are one texture, and the picture is one triangle. */
import { MOST_ZONES } from "./geometry";
import type { Plan } from "./geometry";
import type { FleetModel } from "./model";
import type { Painter, Scene } from "./painter";
import { FRAGMENT, VERTEX } from "./shader";
import { summarize } from "./summary";

const SLOT_WIDTH = 1024;
const NODE_WIDTH = 256;
/** Rows of the texture of states that are uploaded one by one; more are uploaded together. */
const MOST_ROWS = 64;
const [SLOTS, NODES, GRID] = [0, 1, 2];

export class GlPainter implements Painter {
  readonly kind = "gl";
  readonly ratio: number;
  private gl: WebGL2RenderingContext;
  private program: WebGLProgram | null = null;
  private places = new Map<string, WebGLUniformLocation | null>();
  private textures: WebGLTexture[] = [];
  private slotRows = 0;
  private nodeBytes = new Uint8Array(0);
  private plan: Plan | null = null;
  private layout = -1;
  private slots: Uint8Array | null = null;
  private searching = false;
  private lost = false;
  private again: () => void = () => {};

  constructor(
    private readonly canvas: HTMLCanvasElement,
    careful: boolean,
  ) {
    const gl = canvas.getContext("webgl2", {
      alpha: false,
      antialias: false,
      depth: false,
      stencil: false,
      failIfMajorPerformanceCaveat: careful,
      powerPreference: "low-power",
    });
    if (!gl) throw new Error("This browser has no WebGL 2.");
    this.gl = gl;
    this.ratio = window.devicePixelRatio || 1;
    this.build();
    canvas.addEventListener("webglcontextlost", this.onLost);
    canvas.addEventListener("webglcontextrestored", this.onRestored);
  }

  /** `again` is called when the picture must be drawn because the context came back. */
  onRestore(again: () => void): void {
    this.again = again;
  }

  private readonly onLost = (event: Event) => {
    event.preventDefault();
    this.lost = true;
  };

  private readonly onRestored = () => {
    this.lost = false;
    this.layout = -1;
    this.plan = null;
    this.slots = null;
    this.build();
    this.again();
  };

  private build(): void {
    const { gl } = this;
    const program = gl.createProgram();
    for (const [type, source] of [
      [gl.VERTEX_SHADER, VERTEX],
      [gl.FRAGMENT_SHADER, FRAGMENT],
    ] as const) {
      const shader = gl.createShader(type);
      if (!shader) throw new Error("The shader cannot be made.");
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost()) {
        throw new Error(gl.getShaderInfoLog(shader) ?? "The shader does not compile.");
      }
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) {
      throw new Error(gl.getProgramInfoLog(program) ?? "The shader does not link.");
    }
    gl.useProgram(program);
    this.program = program;
    this.places.clear();
    this.textures = [SLOTS, NODES, GRID].map((unit) => {
      const texture = gl.createTexture();
      gl.activeTexture(gl.TEXTURE0 + unit);
      gl.bindTexture(gl.TEXTURE_2D, texture);
      for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, name, gl.NEAREST);
      for (const name of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, name, gl.CLAMP_TO_EDGE);
      return texture;
    });
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    gl.bindVertexArray(gl.createVertexArray());
    gl.uniform1i(this.place("u_slots"), SLOTS);
    gl.uniform1i(this.place("u_nodes"), NODES);
    gl.uniform1i(this.place("u_grid"), GRID);
  }

  private place(name: string): WebGLUniformLocation | null {
    let found = this.places.get(name);
    if (found === undefined) {
      found = this.program ? this.gl.getUniformLocation(this.program, name) : null;
      this.places.set(name, found);
    }
    return found;
  }

  resize(width: number, height: number): void {
    this.canvas.width = Math.max(1, Math.round(width * this.ratio));
    this.canvas.height = Math.max(1, Math.round(height * this.ratio));
  }

  draw(scene: Scene, dirty: ReadonlySet<number> | null, _moved: boolean): void {
    const { gl } = this;
    if (this.lost || gl.isContextLost()) return;
    const { model, plan, searching } = scene;
    if (plan !== this.plan) this.uploadGrid(plan);
    const changedAll = dirty === null || model.layout !== this.layout || model.slots !== this.slots || searching !== this.searching;
    this.uploadStates(model, changedAll ? null : dirty, searching);
    this.uniforms(scene);
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
  }

  private uploadGrid(plan: Plan): void {
    const { gl } = this;
    this.plan = plan;
    gl.activeTexture(gl.TEXTURE0 + GRID);
    const rows = Math.max(1, plan.gridRows);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.R32I, plan.across, rows, 0, gl.RED_INTEGER, gl.INT, plan.grid);
  }

  private uploadStates(model: FleetModel, dirty: ReadonlySet<number> | null, searching: boolean): void {
    const { gl } = this;
    const nodeRows = Math.max(1, Math.ceil(model.nodes.length / NODE_WIDTH));
    gl.activeTexture(gl.TEXTURE0 + NODES);
    if (!dirty) {
      this.layout = model.layout;
      this.slots = model.slots;
      this.searching = searching;
      this.nodeBytes = new Uint8Array(nodeRows * NODE_WIDTH * 4);
      for (let i = 0; i < model.nodes.length; i++) summarize(model, i, searching, this.nodeBytes, i * 4);
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8UI, NODE_WIDTH, nodeRows, 0, gl.RGBA_INTEGER, gl.UNSIGNED_BYTE, this.nodeBytes);
      gl.activeTexture(gl.TEXTURE0 + SLOTS);
      this.slotRows = Math.max(1, Math.ceil(model.slots.length / SLOT_WIDTH));
      const bytes = new Uint8Array(this.slotRows * SLOT_WIDTH);
      bytes.set(model.slots);
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.R8UI, SLOT_WIDTH, this.slotRows, 0, gl.RED_INTEGER, gl.UNSIGNED_BYTE, bytes);
      return;
    }
    if (dirty.size === 0) return;
    const rows = new Set<number>();
    const changedNodes = new Set<number>();
    for (const position of dirty) {
      summarize(model, position, searching, this.nodeBytes, position * 4);
      changedNodes.add(Math.floor(position / NODE_WIDTH));
      rows.add(Math.floor((position * model.stride) / SLOT_WIDTH));
    }
    for (const row of changedNodes) {
      const bytes = this.nodeBytes.subarray(row * NODE_WIDTH * 4, (row + 1) * NODE_WIDTH * 4);
      gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, row, NODE_WIDTH, 1, gl.RGBA_INTEGER, gl.UNSIGNED_BYTE, bytes);
    }
    gl.activeTexture(gl.TEXTURE0 + SLOTS);
    const one = new Uint8Array(SLOT_WIDTH);
    const upload = (row: number) => {
      const bytes = model.slots.subarray(row * SLOT_WIDTH, (row + 1) * SLOT_WIDTH);
      let full = bytes;
      if (bytes.length < SLOT_WIDTH) {
        one.fill(0);
        one.set(bytes);
        full = one;
      }
      gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, row, SLOT_WIDTH, 1, gl.RED_INTEGER, gl.UNSIGNED_BYTE, full);
    };
    if (rows.size <= MOST_ROWS) {
      for (const row of rows) upload(row);
      return;
    }
    const whole = Math.floor(model.slots.length / SLOT_WIDTH);
    if (whole) {
      const bytes = model.slots.subarray(0, whole * SLOT_WIDTH);
      gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, SLOT_WIDTH, whole, gl.RED_INTEGER, gl.UNSIGNED_BYTE, bytes);
    }
    if (whole < this.slotRows) upload(whole);
  }

  private uniforms({ model, plan, camera, palette, searching }: Scene): void {
    const { gl } = this;
    const unit = (colour: readonly number[]) => colour.map((one) => one / 255);
    gl.uniform1f(this.place("u_height"), this.canvas.height);
    gl.uniform1f(this.place("u_scale"), camera.scale * this.ratio);
    gl.uniform1f(this.place("u_ratio"), this.ratio);
    gl.uniform2f(this.place("u_offset"), camera.x, camera.y);
    gl.uniform2f(this.place("u_box"), plan.boxWidth, plan.boxHeight);
    gl.uniform2f(this.place("u_gap"), plan.gapX, plan.gapY);
    gl.uniform2i(this.place("u_cells"), plan.columns, plan.rows);
    gl.uniform1i(this.place("u_across"), plan.across);
    gl.uniform1i(this.place("u_stride"), model.stride);
    gl.uniform1i(this.place("u_searching"), searching ? 1 : 0);
    gl.uniform3fv(this.place("u_states"), palette.states.flatMap(unit));
    gl.uniform3fv(this.place("u_boxes"), palette.boxes.flatMap(unit));
    gl.uniform3fv(this.place("u_background"), unit(palette.background));
    const zones = new Float32Array(MOST_ZONES * 3);
    plan.zones.forEach((zone, i) => zones.set([zone.body, zone.rows, zone.firstRow], i * 3));
    gl.uniform3fv(this.place("u_zones"), zones);
    gl.uniform1i(this.place("u_zone_count"), plan.zones.length);
  }

  dispose(): void {
    this.canvas.removeEventListener("webglcontextlost", this.onLost);
    this.canvas.removeEventListener("webglcontextrestored", this.onRestored);
    for (const texture of this.textures) this.gl.deleteTexture(texture);
    this.gl.deleteProgram(this.program);
    this.gl.getExtension("WEBGL_lose_context")?.loseContext();
  }
}
