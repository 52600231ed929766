/** The picture: canvas, camera, frames. It draws when something has changed, at most once a frame. */
import { drawStats } from "../../state/draw-stats";
import { cellsOf, clampCamera, fitCamera, makePlan, placeAt, zoomAt } from "./geometry";
import type { Camera, Place, Plan } from "./geometry";
import { GlPainter } from "./gl";
import { Labels } from "./labels";
import type { FleetModel } from "./model";
import { hasFastGl } from "./painter";
import type { Painter } from "./painter";
import { readPalette } from "./palette";
import type { Palette } from "./palette";
import { RasterPainter } from "./raster";

export interface StageEvents {
  /** The camera has moved, or the plan is another one. */
  moved?(): void;
  /** Names of the Pods of these nodes are needed. */
  wantNames(positions: number[]): void;
}

export class Stage {
  plan: Plan = makePlan([], 0, 100, 100);
  readonly labels: Labels;
  readonly painter: Painter;
  private view: Camera = { scale: 1, x: 0, y: 0 };
  private readonly canvas: HTMLCanvasElement;
  private readonly observer: ResizeObserver;
  private palette: Palette;
  private width = 0;
  private height = 0;
  private frame = 0;
  private moved = true;
  private searching = false;
  private plannedLayout = -1;
  /** Whether the camera shows everything, and shall go on to when the plan changes. */
  private fitted = true;
  private readonly stats = drawStats("fleet");

  constructor(
    private readonly host: HTMLElement,
    private readonly model: FleetModel,
    private readonly events: StageEvents,
    renderer: string,
  ) {
    const made = makePainter(host, renderer);
    this.canvas = made.canvas;
    this.painter = made.painter;
    if (this.painter instanceof GlPainter) this.painter.onRestore(() => this.redraw());
    this.stats.renderer = this.painter.kind;
    this.stats.locate = (index) => this.locate(index);
    this.palette = readPalette(host);
    this.labels = new Labels(host, model, (positions) => events.wantNames(positions));
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(host);
    this.resize();
    model.dirty = null;
    model.onChange = () => this.schedule();
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
    this.observer.disconnect();
    this.model.onChange = () => {};
    this.painter.dispose();
    this.labels.dispose();
    this.canvas.remove();
  }

  /** Read the colours again. */
  recolour(): void {
    this.palette = readPalette(this.host);
    this.redraw();
  }

  setSearching(searching: boolean): void {
    if (searching === this.searching) return;
    this.searching = searching;
    this.redraw();
  }

  redraw(): void {
    this.moved = true;
    this.schedule();
  }

  // -- camera --------------------------------------------------------------------------------------------------------

  get isFitted(): boolean {
    return this.fitted;
  }

  get camera(): Camera {
    return this.view;
  }

  /** Look at a part of the picture. */
  set camera(camera: Camera) {
    this.setCamera(camera);
  }

  fit(): void {
    this.fitted = true;
    this.view = fitCamera(this.plan, this.width, this.height);
    this.redraw();
  }

  pan(dx: number, dy: number): void {
    const { scale, x, y } = this.camera;
    this.setCamera({ scale, x: x - dx / scale, y: y - dy / scale });
  }

  /** Zoom around a pixel, by default the middle. */
  zoom(factor: number, px = this.width / 2, py = this.height / 2): void {
    this.fitted = false;
    this.view = zoomAt(this.view, factor, px, py, this.plan, this.width, this.height);
    this.redraw();
  }

  /** Move the window so that a part of the plane is visible, with some space around it. */
  reveal(x: number, y: number, width: number, height: number): void {
    const { scale } = this.camera;
    const margin = 24 / scale;
    const along = (from: number, shown: number, at: number, size: number) =>
      at - margin < from ? at - margin : at + size + margin > from + shown ? at + size + margin - shown : from;
    const left = along(this.camera.x, this.width / scale, x, width);
    const top = along(this.camera.y, this.height / scale, y, height);
    if (left !== this.camera.x || top !== this.camera.y) this.setCamera({ scale, x: left, y: top });
  }

  private setCamera(camera: Camera): void {
    this.fitted = false;
    this.view = clampCamera(camera, this.plan, this.width, this.height);
    this.redraw();
  }

  /** What is at a pixel of the host. */
  placeAt(px: number, py: number): Place | null {
    const { scale, x, y } = this.camera;
    return placeAt(this.plan, x + px / scale, y + py / scale);
  }

  /** The middle of the cell of an index, in pixels of the window. */
  private locate(index: number): { x: number; y: number } | null {
    const { plan, camera, model } = this;
    const position = Math.floor(index / model.stride);
    const slot = index % model.stride;
    if (position >= plan.nodes || slot >= plan.columns * plan.rows) return null;
    const box = this.host.getBoundingClientRect();
    const corner = cellsOf(plan, position);
    return {
      x: box.left + (corner.x + (slot % plan.columns) + 0.5 - camera.x) * camera.scale,
      y: box.top + (corner.y + Math.floor(slot / plan.columns) + 0.5 - camera.y) * camera.scale,
    };
  }

  // -- frames --------------------------------------------------------------------------------------------------------

  private resize(): void {
    const { clientWidth, clientHeight } = this.host;
    if (clientWidth === this.width && clientHeight === this.height) return;
    this.width = clientWidth;
    this.height = clientHeight;
    this.painter.resize(clientWidth, clientHeight);
    this.plannedLayout = -1;
    // At once: a canvas is empty after its size has changed.
    this.moved = true;
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.draw();
  }

  private schedule(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private replan(): void {
    const { model, plan } = this;
    const enough = plan.columns * plan.rows >= model.used;
    if (this.plannedLayout === model.layout && enough) return;
    this.plannedLayout = model.layout;
    const zones = model.nodes.map((node) => node.zone);
    const before = { plan, camera: this.camera };
    this.plan = makePlan(zones, model.used, this.width, this.height);
    if (this.fitted || before.plan.nodes === 0) {
      this.view = fitCamera(this.plan, this.width, this.height);
    } else {
      // The middle of the window stays where it was, as a share of the whole.
      const share = (from: number, window: number, size: number) => (from + window / before.camera.scale / 2) / (size || 1);
      const { scale } = before.camera;
      const x = share(before.camera.x, this.width, before.plan.width) * this.plan.width - this.width / scale / 2;
      const y = share(before.camera.y, this.height, before.plan.height) * this.plan.height - this.height / scale / 2;
      this.view = clampCamera({ scale, x, y }, this.plan, this.width, this.height);
    }
    this.moved = true;
  }

  private draw(): void {
    const began = performance.now();
    const { model } = this;
    this.replan();
    const dirty = model.dirty;
    const moved = this.moved;
    this.moved = false;
    model.dirty = new Set();
    const scene = { model, plan: this.plan, camera: this.camera, palette: this.palette, searching: this.searching };
    this.painter.draw(scene, dirty, moved);
    this.labels.update(this.plan, this.camera, this.width, this.height, moved || dirty === null ? null : dirty);
    if (moved) this.events.moved?.();
    this.stats.add(performance.now() - began);
  }
}

/** `renderer`: `gl` or `2d` force one; else the faster one of this computer. */
function makePainter(host: HTMLElement, renderer: string): { canvas: HTMLCanvasElement; painter: Painter } {
  const add = () => {
    const canvas = document.createElement("canvas");
    canvas.className = "fleet-canvas";
    canvas.setAttribute("aria-hidden", "true");
    host.prepend(canvas);
    return canvas;
  };
  const canvas = add();
  if (renderer === "gl" || (renderer !== "2d" && hasFastGl())) {
    try {
      return { canvas, painter: new GlPainter(canvas, renderer !== "gl") };
    } catch {
      canvas.remove();
      const other = add();
      return { canvas: other, painter: new RasterPainter(other) };
    }
  }
  return { canvas, painter: new RasterPainter(canvas) };
}
