/**
 * Paints the part of the fleet that is in view on a canvas.
 *
 * What was painted is kept: after a scroll it is moved, and only the strip that came into view is painted; after
 * changes only their tiles are. Colours are those of the style sheet.
 */

import { HEALTH, MOST_PARTS, NAMESPACE_COLOURS, NOBODY, UNKNOWN, WHOLE } from "/static/fleet_model.js";

/** Tiles as large as this have a line of text above what they hold. */
const LABELLED = 64;
const LABEL_HEIGHT = 16;
/** Parts as high as this name their pod. */
const NAMED_PART = 14;
/** In tiles as large as this, marks of health leave room for names. */
const LARGE = 48;
/** Parts of a tile are set apart by a line where the tile is as high as this. */
const LINED = 12;

/** The step of a percentage on the scale of five colours. */
export function stepOf(percent) {
  return percent >= 100 ? 4 : Math.min(3, Math.floor((percent - 1) / 25));
}

function luminance(hex) {
  const [r, g, b] = [1, 3, 5]
    .map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Black or white, whichever is read better on a colour. */
function inkOn(colour) {
  return luminance(colour) > 0.18 ? "#000000" : "#ffffff";
}

/** The colours and fonts of the style sheet, as a canvas wants them. */
export class Theme {
  constructor(element) {
    const style = getComputedStyle(element);
    const of = (name) => style.getPropertyValue(name).trim();
    this.page = of("--surface");
    this.text = of("--text");
    this.muted = of("--muted");
    this.empty = of("--tile-empty");
    this.edge = of("--tile-edge");
    this.alarm = of("--bad");
    this.scale = [0, 1, 2, 3, 4].map((step) => of(`--scale-${step}`));
    this.health = HEALTH.map((word) => of(`--health-${word.toLowerCase()}`));
    this.namespaces = Array.from({ length: NAMESPACE_COLOURS + 1 }, (_, i) => of(`--namespace-${i}`));
    this.family = style.fontFamily;
    this.inks = new Map([...this.scale, ...this.health, ...this.namespaces].map((colour) => [colour, inkOn(colour)]));
  }
}

/** Text cut in front to fit a width, because the ends of nodes' names tell them apart. */
function fitEnd(context, text, width) {
  if (context.measureText(text).width <= width) {
    return text;
  }
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (context.measureText(`…${text.slice(middle)}`).width <= width) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low >= text.length ? "" : `…${text.slice(low)}`;
}

/** A pod's name cut to fit a width: first its namespace goes, then the end, of which controllers make most. */
function fitPod(context, text, width) {
  if (context.measureText(text).width <= width) {
    return text;
  }
  const name = text.slice(text.indexOf("/") + 1);
  let length = name.length;
  while (length > 0 && context.measureText(cutTo(name, length)).width > width) {
    length -= 1;
  }
  return length === 0 ? "" : cutTo(name, length);
}

function cutTo(name, length) {
  return length < name.length ? `${name.slice(0, length)}…` : name;
}

/** What a tile says of itself in numbers. */
function percentText(fleet, tile, colour) {
  if (colour === "used") {
    return fleet.usedPercent[tile] === UNKNOWN ? "–" : `${fleet.usedPercent[tile]}%`;
  }
  return `${colour === "compute" ? fleet.computePercent[tile] : fleet.memoryPercent[tile]}%`;
}

/** The painter of one canvas. */
export class Painter {
  constructor(canvas, theme) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.width = 0;
    this.height = 0;
    this.ratio = 1;
    this.top = 0;
    this.isWhole = false;
    this.fill = "";
    this.setTheme(theme);
  }

  /** Takes other colours. */
  setTheme(theme) {
    this.theme = theme;
    this.hatch = null;
    this.isWhole = false;
  }

  /** Sets the size of the view, in CSS pixels. */
  resize(width, height, ratio) {
    if (width !== this.width || height !== this.height || ratio !== this.ratio) {
      this.width = width;
      this.height = height;
      this.ratio = ratio;
      this.canvas.width = Math.max(1, Math.round(width * ratio));
      this.canvas.height = Math.max(1, Math.round(height * ratio));
      this.hatch = null;
      this.isWhole = false;
    }
  }

  /** Has the next `paint` paint everything. */
  invalidate() {
    this.isWhole = false;
  }

  /**
   * Brings the canvas up to date.
   *
   * @param {Object} view fleet, layout, order and slots of tiles, colour (a word of the toolbar), colours of
   *   namespaces, whether groups are nodes, and a function for the text of a group's heading
   * @param {number} scrolled how far the layout is scrolled, in CSS pixels
   * @param {Iterable<number>} dirty the tiles that changed
   * @param {Iterable<number>} dirtyGroups the groups whose headings changed
   */
  paint(view, scrolled, dirty, dirtyGroups) {
    this.view = view;
    const top = Math.round(scrolled * this.ratio);
    const moved = top - this.top;
    const { height } = this.canvas;
    this.top = top;
    this.fill = "";
    if (!this.isWhole || Math.abs(moved) >= height) {
      this.isWhole = true;
      this.#paintStrip(0, height);
      return;
    }
    if (moved !== 0) {
      this.context.drawImage(this.canvas, 0, -moved);
      if (moved > 0) {
        this.#paintStrip(height - moved, height);
      } else {
        this.#paintStrip(0, -moved);
      }
    }
    this.#paintDirty(dirty, dirtyGroups);
  }

  #paintDirty(dirty, dirtyGroups) {
    const { layout, slots } = this.view;
    const from = this.top / this.ratio - layout.pitch;
    const to = (this.top + this.canvas.height) / this.ratio;
    for (const tile of dirty) {
      const slot = slots[tile];
      if (slot >= 0) {
        const { x, y } = layout.placeOf(slot);
        if (y > from && y < to) {
          this.#paintTile(tile, x, y);
        }
      }
    }
    if (layout.head > 0) {
      for (const group of dirtyGroups) {
        const y = layout.groupY[group];
        if (y > from - layout.head && y < to) {
          this.#paintHeading(group);
        }
      }
    }
  }

  /** Paints between two heights of the canvas, in its own pixels. */
  #paintStrip(from, to) {
    const { context, ratio, top } = this;
    const { layout, order } = this.view;
    context.save();
    context.beginPath();
    context.rect(0, from, this.canvas.width, to - from);
    context.clip();
    this.#rect(this.theme.page, 0, from, this.canvas.width, to - from);
    const upper = (top + from) / ratio;
    const lower = (top + to) / ratio;
    const { pitch, head } = layout;
    for (let row = layout.rowAt(upper); row < layout.rowY.length - 1 && layout.rowY[row] < lower; row += 1) {
      for (let group = layout.rowFirst[row]; group < layout.rowFirst[row + 1]; group += 1) {
        const { first, count } = layout.groups[group];
        const columns = layout.groupColumns[group];
        const y = layout.groupY[group] + head;
        if (head > 0 && y > upper) {
          this.#paintHeading(group);
        }
        const line = Math.max(0, Math.floor((upper - y) / pitch));
        const end = Math.min(count, Math.max(0, Math.ceil((lower - y) / pitch)) * columns);
        for (let i = line * columns; i < end; i += 1) {
          const tileY = y + Math.floor(i / columns) * pitch;
          this.#paintTile(order[first + i], layout.groupX[group] + (i % columns) * pitch, tileY);
        }
      }
    }
    context.restore();
    this.fill = "";
  }

  #rect(colour, x, y, width, height) {
    // Setting a colour parses it, even if it is the same.
    if (this.fill !== colour) {
      this.fill = colour;
      this.context.fillStyle = colour;
    }
    this.context.fillRect(x, y, width, height);
  }

  #font(size, weight) {
    const font = `${weight} ${Math.round(size * this.ratio)}px ${this.theme.family}`;
    if (this.context.font !== font) {
      this.context.font = font;
    }
  }

  #text(colour, text, x, y) {
    this.context.fillStyle = colour;
    this.fill = "";
    this.context.fillText(text, x, y);
  }

  #paintHeading(group) {
    const { context, ratio, theme } = this;
    const { layout, heading } = this.view;
    const x = Math.round(layout.groupX[group] * ratio);
    const y = Math.round(layout.groupY[group] * ratio) - this.top;
    const width = Math.round(layout.groupWidth[group] * ratio);
    const height = Math.round(layout.head * ratio);
    const { label, amounts, alarm } = heading(group);
    const middle = y + Math.round(height / 2);
    this.#rect(theme.page, x, y, width, height);
    const size = layout.head < 20 ? 11 : 13;
    const spare = Math.round(4 * ratio);
    context.textBaseline = "middle";
    context.textAlign = "left";
    let left = x;
    if (alarm !== "") {
      this.#font(size, 700);
      this.#text(theme.alarm, alarm, left, middle);
      left += context.measureText(alarm).width + spare;
    }
    // The name comes first, then what is wrong, then how much is held.
    this.#font(size, 600);
    const name = fitEnd(context, label, x + width - left);
    this.#text(theme.text, name, left, middle);
    left += context.measureText(name).width + spare;
    this.#font(size, 400);
    context.textAlign = "right";
    const amount = amounts.findLast((text) => context.measureText(text).width <= x + width - left);
    if (amount !== undefined) {
      this.#text(theme.muted, amount, x + width - 1, middle);
    }
  }

  #partColour(tile, part) {
    const { fleet, colour, namespaces } = this.view;
    switch (colour) {
      case "health":
        return this.theme.health[fleet.partHealth[part]];
      case "namespace":
        return this.theme.namespaces[namespaces.of(fleet.partNamespace[part])];
      case "used":
        return fleet.usedPercent[tile] === UNKNOWN
          ? this.theme.namespaces[NAMESPACE_COLOURS]
          : this.theme.scale[stepOf(Math.max(1, fleet.usedPercent[tile]))];
      case "compute":
        return this.theme.scale[stepOf(Math.max(1, fleet.computePercent[tile]))];
      default:
        return this.theme.scale[stepOf(Math.max(1, fleet.memoryPercent[tile]))];
    }
  }

  #paintTile(tile, cssX, cssY) {
    const { ratio, theme } = this;
    const { fleet, layout } = this.view;
    const inner = layout.pitch - layout.gap;
    const x = Math.round(cssX * ratio);
    const y = Math.round(cssY * ratio) - this.top;
    const size = Math.round((cssX + inner) * ratio) - x;
    const line = Math.max(1, Math.floor(ratio));
    const isLabelled = inner >= LABELLED;
    const label = isLabelled ? Math.round(LABEL_HEIGHT * ratio) : 0;
    if (isLabelled) {
      this.#paintLabel(tile, x, y, size, label);
    }
    // What a tile holds is framed, so that where it ends is seen whatever its colour.
    const bodyY = y + label;
    const body = size - label;
    this.#rect(theme.edge, x, bodyY, size, body);
    const left = x + line;
    const top = bodyY + line;
    const width = size - 2 * line;
    const height = body - 2 * line;
    this.#rect(theme.empty, left, top, width, height);
    const first = tile * MOST_PARTS;
    const isLined = inner >= LINED;
    for (let at = first; at < first + fleet.partCount[tile]; at += 1) {
      const lower = top + height - Math.round((fleet.partStart[at] * height) / WHOLE);
      const upper = top + height - Math.round((fleet.partEnd[at] * height) / WHOLE);
      const namespace = fleet.partNamespace[at];
      // A part is seen, however small it is.
      const tall = Math.max(lower - upper, line);
      if (namespace !== NOBODY) {
        this.#rect(this.#partColour(tile, at), left, lower - tall, width, tall);
      }
      if (isLined && tall > (namespace === NOBODY ? 2 : 3) * line && fleet.partEnd[at] < WHOLE - 50) {
        // The light colours of the scale do not stand out from what is free by themselves.
        const isLast = at === first + fleet.partCount[tile] - 1;
        this.#rect(namespace === NOBODY || isLast ? theme.edge : theme.empty, left, lower - tall, width, line);
      }
    }
    if (fleet.health[tile] > 0) {
      this.#paintHealth(fleet.cardHealth[tile], left, top, width, height);
      this.#paintPartsHealth(tile, left, top, width, height);
    }
    if (isLabelled) {
      this.#paintNames(tile, left, top, width, height);
    }
  }

  #paintLabel(tile, x, y, size, height) {
    const { context, theme, ratio } = this;
    const { fleet, colour, isByNode } = this.view;
    const middle = y + Math.round(height / 2) - Math.round(ratio);
    this.#rect(theme.page, x, y, size, height);
    context.textBaseline = "middle";
    this.#font(12, 400);
    const amount = percentText(fleet, tile, colour);
    const gpu = fleet.gpuOf(tile);
    context.textAlign = "right";
    this.#text(theme.muted, amount, x + size, middle);
    context.textAlign = "left";
    const room = size - context.measureText(amount).width - 6 * ratio;
    const index = gpu.index >= 0 ? String(gpu.index) : "GPU";
    const long = isByNode ? `${index} ${gpu.model}` : `${fleet.owners[tile].name} · ${index}`;
    const isShort = isByNode && context.measureText(long).width > room;
    this.#text(theme.text, isShort ? index : fitEnd(context, long, room), x, middle);
  }

  #paintNames(tile, left, top, width, height) {
    const { context, ratio } = this;
    const { fleet } = this.view;
    const node = fleet.owners[tile];
    const members = fleet.members[tile].map((position) => node.gpus[position]);
    const devices = members.filter((gpu) => gpu.parent !== "");
    const holders = devices.length > 0 ? devices : members;
    const names = holders.flatMap((gpu) => {
      const pods = gpu.state.pods.map(([namespace, pod]) => (pod === "" ? "others" : `${namespace}/${pod}`));
      return devices.length > 0 && pods.length === 0 ? [""] : pods;
    });
    const first = tile * MOST_PARTS;
    this.#font(11, 400);
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (let i = 0; i < Math.min(names.length, fleet.partCount[tile]); i += 1) {
      const lower = top + height - (fleet.partStart[first + i] * height) / WHOLE;
      const upper = top + height - (fleet.partEnd[first + i] * height) / WHOLE;
      if (lower - upper >= NAMED_PART * ratio && names[i] !== "") {
        const colour = this.#partColour(tile, first + i);
        const text = fitPod(context, names[i], width - 8 * ratio);
        if (fleet.health[tile] > 0) {
          // Text on hatches cannot be read.
          const tall = Math.round((NAMED_PART - 1) * ratio);
          const wide = Math.ceil(context.measureText(text).width + 4 * ratio);
          this.#rect(colour, left + 2 * ratio, Math.round((lower + upper - tall) / 2), wide, tall);
        }
        this.#text(this.theme.inks.get(colour), text, left + 4 * ratio, Math.round((lower + upper) / 2));
      }
    }
  }

  /** Marks what of a tile is in a graver state than its GPU. */
  #paintPartsHealth(tile, left, top, width, height) {
    const { fleet } = this.view;
    const first = tile * MOST_PARTS;
    for (let at = first; at < first + fleet.partCount[tile]; at += 1) {
      if (fleet.partHealth[at] > fleet.cardHealth[tile]) {
        const upper = top + height - Math.round((fleet.partEnd[at] * height) / WHOLE);
        const lower = top + height - Math.round((fleet.partStart[at] * height) / WHOLE);
        this.#paintHealth(fleet.partHealth[at], left, upper, width, Math.max(lower - upper, 1));
      }
    }
  }

  /** Marks a tile that is not healthy: `?` disputed, `!` degraded, two bars paused, a bar cordoned, hatched unhealthy. */
  #paintHealth(code, x, y, width, height) {
    const { context, ratio, theme } = this;
    const word = HEALTH[code];
    if (code === 0) {
      return;
    }
    const line = Math.max(1, Math.round(ratio));
    const isLarge = width >= LARGE * ratio;
    if (word === "Unhealthy") {
      // All tiles are of one size; so are their hatches.
      if (this.hatch === null || this.hatchFor !== width) {
        this.hatch = this.#makeHatch(Math.min(14, 4 + width / ratio / 6));
        this.hatchFor = width;
      }
      context.fillStyle = this.hatch;
      this.fill = "";
      // A pattern begins at the origin; if that were the view's, a tile painted in two strips would show a seam.
      context.translate(x, y);
      context.fillRect(0, 0, width, height);
      context.translate(-x, -y);
    } else if (word === "Cordoned") {
      const tall = Math.min(isLarge ? Math.round(8 * ratio) : Math.max(2 * line, Math.round(height / 6)), height);
      const barY = y + Math.round(Math.min(isLarge ? 4 * line : height, (height - tall) / 2));
      this.#rect(theme.page, x, barY - line, width, tall + 2 * line);
      this.#rect(theme.text, x, barY, width, tall);
    } else {
      const side = Math.round(Math.min(width, height, Math.max(11 * ratio, Math.min(24 * ratio, width * 0.65))));
      const boxX = isLarge ? x + width - side : x + Math.round((width - side) / 2) + line;
      const boxY = isLarge ? y : y + Math.round((height - side) / 2);
      const wide = isLarge ? side : side - 2 * line;
      this.#rect(theme.page, boxX, boxY, wide, side);
      if (word === "Paused") {
        const bar = Math.max(line, Math.round(side / 6));
        const tall = Math.round(side * 0.6);
        const barY = boxY + Math.round((side - tall) / 2);
        const middle = boxX + Math.round(wide / 2);
        this.#rect(theme.text, middle - 2 * bar, barY, bar, tall);
        this.#rect(theme.text, middle + bar, barY, bar, tall);
        return;
      }
      context.textAlign = "center";
      context.textBaseline = "middle";
      this.#font((side / ratio) * 0.95, 700);
      this.#text(theme.text, word === "Degraded" ? "!" : "?", boxX + wide / 2, boxY + Math.round(side / 2 + side / 16));
    }
  }

  #makeHatch(cssPeriod) {
    const period = Math.max(5, Math.round(cssPeriod * this.ratio));
    const line = Math.min(period / 3.8, 2 * this.ratio);
    const cell = document.createElement("canvas");
    cell.width = period;
    cell.height = period;
    const context = cell.getContext("2d");
    for (const [colour, width] of [[this.theme.page, 2 * line], [this.theme.text, line]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      for (const shift of [-period, 0, period]) {
        context.moveTo(shift - 1, period + 1);
        context.lineTo(shift + period + 1, -1);
      }
      context.stroke();
    }
    return this.context.createPattern(cell, "repeat");
  }
}
