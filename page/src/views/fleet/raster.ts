/** Draws pixel by pixel into a Canvas 2D: for computers whose WebGL is emulated by the processor. */
import { zoneAt } from "./geometry";
import type { Plan } from "./geometry";
import { CARDS, MARKED, MARK_INSET, MARK_PIXELS, markAt } from "./marks";
import { SMALLEST } from "./painter";
import type { Painter, Scene } from "./painter";
import { mix } from "./palette";
import type { Palette, Rgb } from "./palette";
import { SELECTED, STATES } from "./states";
import { summarize } from "./summary";

/** Dirty nodes from which on everything is drawn again. */
const MOST_DIRTY = 400;
const NODE_LOOKS = 5;
/** Kinds of places along an axis, below 0; from 0 on it is the number of a cell. */
const OUTSIDE = -1;
const FRAME = -2;

/** For each pixel along an axis: the box it is in, the cell in the box, and the place in the cell. */
interface Axis {
  box: Int32Array;
  cell: Int16Array;
  within: Uint16Array;
}

export class RasterPainter implements Painter {
  readonly kind = "2d";
  readonly ratio: number;
  private readonly context: CanvasRenderingContext2D;
  private image: ImageData | null = null;
  private pixels = new Uint32Array(0);
  private x: Axis = axis(0);
  private y: Axis = axis(0);
  /** Colours of values 0 to 255 in a plain cell. */
  private plain = new Uint32Array(256);
  /** Cells with marks: for each value 0 to 255 the offset of its picture in `sprites`. */
  private sprites = new Uint32Array(0);
  private offsets = new Int32Array(256);
  /** The side of the pictures in `sprites`; 0: cells are plain. */
  private side = 0;
  private spriteKey = "";
  private background = 0;
  private frames = new Uint32Array(NODE_LOOKS);
  private free = new Uint32Array(NODE_LOOKS);
  private readonly summary = new Uint8Array(4);

  constructor(private readonly canvas: HTMLCanvasElement) {
    const context = canvas.getContext("2d", { alpha: false, willReadFrequently: true });
    if (!context) throw new Error("This browser has no Canvas 2D.");
    this.context = context;
    // More pixels would cost time, and text is not drawn here.
    this.ratio = Math.min(1, window.devicePixelRatio || 1);
  }

  resize(width: number, height: number): void {
    const wide = Math.max(1, Math.round(width * this.ratio));
    const high = Math.max(1, Math.round(height * this.ratio));
    this.canvas.width = wide;
    this.canvas.height = high;
    this.image = this.context.createImageData(wide, high);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.x = axis(wide);
    this.y = axis(high);
  }

  draw(scene: Scene, dirty: ReadonlySet<number> | null, moved: boolean): void {
    const image = this.image;
    if (!image) return;
    if (moved || !dirty || dirty.size > MOST_DIRTY) {
      this.prepare(scene);
      this.paint(scene, 0, 0, image.width, image.height);
      this.context.putImageData(image, 0, 0);
      return;
    }
    const { plan, camera } = scene;
    const scale = camera.scale * this.ratio;
    for (const position of dirty) {
      const corner = boxCorner(plan, position);
      const left = Math.max(0, Math.floor((corner.x - camera.x) * scale));
      const top = Math.max(0, Math.floor((corner.y - camera.y) * scale));
      const right = Math.min(image.width, Math.ceil((corner.x + plan.boxWidth - camera.x) * scale));
      const bottom = Math.min(image.height, Math.ceil((corner.y + plan.boxHeight - camera.y) * scale));
      if (right <= left || bottom <= top) continue;
      this.paint(scene, left, top, right, bottom);
      this.context.putImageData(image, 0, 0, left, top, right - left, bottom - top);
    }
  }

  dispose(): void {
    this.image = null;
  }

  private prepare({ plan, camera, palette, searching }: Scene): void {
    const scale = camera.scale * this.ratio;
    const { image, x, y } = this;
    if (!image) return;
    const thickness = Math.min(1, (3 * this.ratio) / scale);
    this.prepareSprites(scale, palette, searching);
    for (let i = 0; i < image.width; i++) {
      const at = camera.x + (i + 0.5) / scale;
      const box = Math.floor(at / plan.boxWidth);
      const inside = at >= 0 && box < plan.across;
      fill(x, i, inside ? box : OUTSIDE, at - box * plan.boxWidth - plan.gapX, plan.columns, thickness, this.side);
    }
    for (let i = 0; i < image.height; i++) {
      const at = camera.y + (i + 0.5) / scale;
      const zone = zoneAt(plan, at);
      const row = zone ? Math.floor((at - zone.body) / plan.boxHeight) : 0;
      const inner = zone ? at - zone.body - row * plan.boxHeight - plan.gapY : 0;
      fill(y, i, zone ? zone.firstRow + row : OUTSIDE, inner, plan.rows, thickness, this.side);
    }
  }

  private prepareSprites(scale: number, palette: Palette, searching: boolean): void {
    const side = scale < MARKED ? 0 : Math.round(scale);
    const key = `${side} ${searching} ${palette.states.join()} ${palette.background.join()} ${palette.boxes.join()}`;
    if (key === this.spriteKey) return;
    this.spriteKey = key;
    this.side = side;
    const { background } = palette;
    this.background = pack(background);
    palette.boxes.forEach((colour, look) => {
      this.frames[look] = pack(look === 1 ? background : colour);
      this.free[look] = pack(look === 1 ? palette.states[0]! : mix(palette.states[0]!, colour, 0.25));
    });
    const bright = (value: number, colour: Rgb) =>
      searching && !(value & SELECTED) ? mix(background, colour, 0.22) : colour;
    if (side) this.sprites = new Uint32Array(2 * STATES * side * side);
    for (let value = 0; value < 256; value++) {
      const state = value & (STATES - 1);
      const colour = bright(value, palette.states[state]!);
      this.plain[value] = pack(colour);
      if (side) this.offsets[value] = ((value & SELECTED ? STATES : 0) + state) * side * side;
    }
    if (!side) return;
    for (const chosen of [0, SELECTED]) {
      for (let state = 1; state < STATES; state++) {
        const colour = bright(chosen, palette.states[state]!);
        drawCell(this.sprites.subarray(this.offsets[chosen | state]!), side, this.ratio, state, colour, background);
      }
    }
  }

  private paint({ model, plan, camera, searching }: Scene, left: number, top: number, right: number, bottom: number): void {
    const { pixels, x, y, plain, sprites, offsets, side, background, frames, free, summary } = this;
    const width = this.image!.width;
    const { slots, stride } = model;
    const { grid, across, columns } = plan;
    const tiny = camera.scale * this.ratio < SMALLEST;
    for (let j = top; j < bottom; j++) {
      const row = y.box[j]!;
      const cellY = y.cell[j]!;
      const start = j * width;
      if (row < 0 || cellY === OUTSIDE) {
        pixels.fill(background, start + left, start + right);
        continue;
      }
      const line = row * across;
      const withinY = y.within[j]! * side;
      let box = -1;
      let position = -1;
      let look = 1;
      for (let i = left; i < right; i++) {
        const column = x.box[i]!;
        const cellX = x.cell[i]!;
        if (column !== box) {
          box = column;
          position = column < 0 ? -1 : grid[line + column]!;
          if (position >= 0) {
            summarize(model, position, searching && tiny, summary, 0);
            look = summary[0]!;
          }
        }
        let colour = background;
        if (position >= 0 && cellX !== OUTSIDE) {
          if (cellX === FRAME || cellY === FRAME) colour = frames[look]!;
          else if (tiny) {
            const middle = cellX * 4 >= columns && cellX * 4 < columns * 3 && cellY * 4 >= plan.rows && cellY * 4 < plan.rows * 3;
            const state = middle ? summary[2]! : summary[1]!;
            colour = state ? plain[state | (summary[3] ? SELECTED : 0)]! : free[look]!;
          } else {
            const slot = cellY * columns + cellX;
            const value = slot < stride ? slots[position * stride + slot]! : 0;
            if (value === 0) colour = free[look]!;
            else colour = side ? sprites[offsets[value]! + withinY + x.within[i]!]! : plain[value]!;
          }
        }
        pixels[start + i] = colour;
      }
    }
  }
}

function axis(length: number): Axis {
  return { box: new Int32Array(length), cell: new Int16Array(length), within: new Uint16Array(length) };
}

function fill(to: Axis, i: number, box: number, inner: number, cells: number, thickness: number, side: number): void {
  to.box[i] = box;
  const cell = Math.floor(inner);
  to.cell[i] = inner < 0 ? (inner >= -thickness ? FRAME : OUTSIDE) : Math.min(cells - 1, cell);
  to.within[i] = Math.min(side - 1, Math.max(0, Math.floor((inner - cell) * side)));
}

function boxCorner(plan: Plan, position: number): { x: number; y: number } {
  let zone = plan.zones[0]!;
  for (const one of plan.zones) if (one.first <= position) zone = one;
  const within = position - zone.first;
  return {
    x: (within % plan.across) * plan.boxWidth,
    y: zone.body + Math.floor(within / plan.across) * plan.boxHeight,
  };
}

/** Draw the cell of a state: with its mark, or as a card with a small mark in the corner. */
function drawCell(to: Uint32Array, side: number, ratio: number, state: number, colour: Rgb, background: Rgb): void {
  const full = pack(colour);
  const soft = pack(mix(background, colour, 0.25));
  const card = pack(mix(background, colour, 0.16));
  const empty = pack(background);
  const isCard = side >= CARDS * ratio;
  const pad = isCard ? 3 * ratio : Math.max(0.5, side * 0.06);
  const border = 1.5 * ratio;
  for (let v = 0; v < side; v++) {
    for (let u = 0; u < side; u++) {
      const px = u + 0.5;
      const py = v + 0.5;
      const edge = Math.min(px, py, side - px, side - py) - pad;
      let value = empty;
      if (edge >= 0) {
        if (isCard) {
          const mu = (px - MARK_INSET * ratio) / (MARK_PIXELS * ratio);
          const mv = (py - MARK_INSET * ratio) / (MARK_PIXELS * ratio);
          if (edge < border) value = full;
          else if (mu >= 0 && mu < 1 && mv >= 0 && mv < 1) value = markAt(state, mu, mv) ? full : soft;
          else value = card;
        } else {
          const inner = side - 2 * pad;
          value = markAt(state, (px - pad) / inner, (py - pad) / inner) ? full : soft;
        }
      }
      to[v * side + u] = value;
    }
  }
}

/** A pixel as it is in the memory of little-endian computers, which all that have browsers are. */
function pack([red, green, blue]: Rgb): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
