/** The shaders of `gl.ts`. The marks are those of `marks.ts`. */
import { MOST_ZONES } from "./geometry";
import { CARDS, MARKED, MARK_INSET, MARK_PIXELS } from "./marks";
import { SMALLEST } from "./painter";

export const VERTEX = `#version 300 es
void main() {
  vec2 corner = vec2(float((gl_VertexID << 1) & 2), float(gl_VertexID & 2));
  gl_Position = vec4(corner * 2.0 - 1.0, 0.0, 1.0);
}`;

const float = (value: number) => (Number.isInteger(value) ? `${value}.0` : String(value));

export const FRAGMENT = `#version 300 es
precision highp float;
precision highp int;
uniform highp usampler2D u_slots;
uniform highp usampler2D u_nodes;
uniform highp isampler2D u_grid;
uniform float u_height, u_scale, u_ratio;
uniform vec2 u_offset, u_box, u_gap;
uniform ivec2 u_cells;
uniform int u_across, u_stride, u_searching, u_zone_count;
uniform vec3 u_states[8];
uniform vec3 u_boxes[5];
uniform vec3 u_background;
uniform vec3 u_zones[${MOST_ZONES}];
out vec4 result;

bool mark(int state, vec2 uv) {
  vec2 d = abs(uv - 0.5);
  float edge = max(d.x, d.y);
  if (state == 2) return edge > 0.33 || uv.y > 0.5;
  if (state == 3) return abs(d.x - d.y) > 0.1 || edge > 0.33;
  if (state == 4) return d.y > 0.1 || edge > 0.33;
  if (state == 5) return edge > 0.33;
  if (state == 6) return edge < 0.24;
  if (state == 7) return edge > 0.33 || abs(uv.x + uv.y - 1.0) < 0.12;
  return true;
}

vec3 cell(int state, vec3 colour, vec2 f) {
  if (u_scale < ${float(MARKED)}) return colour;
  vec2 p = f * u_scale;
  bool card = u_scale >= ${float(CARDS)} * u_ratio;
  float pad = card ? 3.0 * u_ratio : max(0.5, u_scale * 0.06);
  float edge = min(min(p.x, p.y), min(u_scale - p.x, u_scale - p.y)) - pad;
  if (edge < 0.0) return u_background;
  vec3 soft = mix(u_background, colour, 0.25);
  if (!card) return mark(state, (p - pad) / (u_scale - 2.0 * pad)) ? colour : soft;
  if (edge < 1.5 * u_ratio) return colour;
  vec2 m = (p - ${float(MARK_INSET)} * u_ratio) / (${float(MARK_PIXELS)} * u_ratio);
  if (all(greaterThanEqual(m, vec2(0.0))) && all(lessThan(m, vec2(1.0)))) return mark(state, m) ? colour : soft;
  return mix(u_background, colour, 0.16);
}

void main() {
  vec2 p = u_offset + vec2(gl_FragCoord.x, u_height - gl_FragCoord.y) / u_scale;
  result = vec4(u_background, 1.0);
  if (p.x < 0.0) return;
  int column = int(floor(p.x / u_box.x));
  if (column >= u_across) return;
  int row = -1;
  float top = 0.0;
  for (int i = 0; i < ${MOST_ZONES}; i++) {
    if (i >= u_zone_count) break;
    vec3 zone = u_zones[i];
    float down = floor((p.y - zone.x) / u_box.y);
    if (down >= 0.0 && down < zone.y) {
      row = int(zone.z + down);
      top = zone.x + down * u_box.y;
      break;
    }
  }
  if (row < 0) return;
  int position = texelFetch(u_grid, ivec2(column, row), 0).r;
  if (position < 0) return;
  vec2 inner = p - vec2(float(column) * u_box.x, top) - u_gap;
  uvec4 node = texelFetch(u_nodes, ivec2(position & 255, position >> 8), 0);
  int look = int(node.r);
  if (inner.x < 0.0 || inner.y < 0.0) {
    float thickness = min(1.0, 3.0 * u_ratio / u_scale);
    if (look != 1 && inner.x >= -thickness && inner.y >= -thickness) result.rgb = u_boxes[look];
    return;
  }
  vec3 unused = look == 1 ? u_states[0] : mix(u_states[0], u_boxes[look], 0.25);
  bool dim = u_searching == 1;
  if (u_scale < ${float(SMALLEST)}) {
    vec2 part = floor(inner) * 4.0 / vec2(u_cells);
    bool middle = all(greaterThanEqual(part, vec2(1.0))) && all(lessThan(part, vec2(3.0)));
    int state = int(middle ? node.b : node.g);
    vec3 colour = u_states[state];
    if (dim && node.a == 0u) colour = mix(u_background, colour, 0.22);
    result.rgb = state == 0 ? unused : colour;
    return;
  }
  ivec2 at = min(ivec2(inner), u_cells - 1);
  int slot = at.y * u_cells.x + at.x;
  if (slot >= u_stride) {
    result.rgb = unused;
    return;
  }
  int index = position * u_stride + slot;
  int value = int(texelFetch(u_slots, ivec2(index & 1023, index >> 10), 0).r);
  int state = value & 127;
  if (state == 0 || state > 7) {
    result.rgb = unused;
    return;
  }
  vec3 colour = u_states[state];
  if (dim && (value & 128) == 0) colour = mix(u_background, colour, 0.22);
  result.rgb = cell(state, colour, inner - vec2(at));
}`;
