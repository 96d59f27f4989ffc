/**
 * Where each tile is: groups as cards that flow in rows, or as sections as wide as the view where a group is large.
 *
 * Everything is arithmetic on a few numbers per group, and all numbers are CSS pixels. A slot is the place of a tile in
 * the order of display. Nothing here knows the page.
 */

/** A group of more tiles is a section of its own. */
const LARGEST_CARD = 32;
/** So many tiles of a card stand side by side; whichever makes for larger tiles. */
const CARD_COLUMNS = [8, 4];
/** A heading needs this width to say anything. */
const NARROWEST_CARD = 96;
const MARGIN = 8;

/** The space between tiles of this pitch. */
export function gapOf(pitch) {
  if (pitch < 22) {
    return 1;
  }
  return pitch < 48 ? 2 : Math.round(pitch / 20);
}

/** The height of a group's heading above tiles of this pitch. */
export function headingOf(pitch) {
  return pitch < 40 ? 17 : 22;
}

/**
 * The layout with the largest tiles that fit; with the smallest, if none do.
 *
 * @param {{count: number, first: number}[]} groups in order; each has at least one tile
 * @param {{width: number, height: number, smallest: number, largest: number, hasHeadings: boolean}} room
 */
export function arrange(groups, { width, height, smallest, largest, hasHeadings }) {
  const inner = Math.max(width - 2 * MARGIN, smallest);
  const counts = Int32Array.from(groups, (group) => group.count);
  let best = null;
  for (const columns of CARD_COLUMNS) {
    const shape = { width: inner, hasHeadings, columns };
    const pitch = largestPitch(counts, shape, height, smallest, Math.min(largest, inner));
    const needed = heightWith(counts, shape, pitch);
    if (best === null || pitch > best.pitch || (pitch === best.pitch && needed < best.needed)) {
      best = { shape, pitch, needed };
    }
  }
  return new Layout(groups, counts, best.shape, best.pitch);
}

function largestPitch(counts, shape, height, smallest, largest) {
  let pitch = Math.max(largest, smallest);
  while (pitch > smallest && heightWith(counts, shape, pitch) > height) {
    pitch = Math.max(smallest, pitch - (pitch > 64 ? 4 : 1));
  }
  return pitch;
}

/** The measures of cards whose tiles have this pitch. */
function measure(counts, { width, hasHeadings, columns }, pitch) {
  const head = hasHeadings ? headingOf(pitch) : 0;
  const all = Math.max(1, Math.floor(width / pitch));
  let unit = 1;
  let cards = 0;
  for (const count of counts) {
    if (!isSection(count, hasHeadings)) {
      unit = Math.max(unit, Math.min(count, columns));
      cards += 1;
    }
  }
  // A node's tiles stand in one row, or in two or four of the same length.
  while (unit > all) {
    unit = Math.ceil(unit / 2);
  }
  const narrowest = Math.max(10, Math.round(pitch / 4));
  const cardWidth = Math.min(width, Math.max(unit * pitch, NARROWEST_CARD));
  const perRow = Math.max(1, Math.floor((width + narrowest) / (cardWidth + narrowest)));
  // Where cards fill a row, they fill all of it.
  const spare = cards >= perRow && perRow > 1 ? Math.floor((width - perRow * cardWidth) / (perRow - 1)) : narrowest;
  const gapX = Math.min(spare, 3 * narrowest);
  return { head, all, unit, stride: cardWidth + gapX, cardWidth, perRow, gapY: Math.max(7, Math.round(pitch / 5)) };
}

function isSection(count, hasHeadings) {
  return !hasHeadings || count > LARGEST_CARD;
}

function heightWith(counts, shape, pitch) {
  const { hasHeadings } = shape;
  const { head, all, unit, perRow, gapY } = measure(counts, shape, pitch);
  let height = 2 * MARGIN;
  let inRow = 0;
  let tallest = 0;
  for (const count of counts) {
    if (isSection(count, hasHeadings)) {
      height += tallest + head + Math.ceil(count / all) * pitch + gapY;
      inRow = 0;
      tallest = 0;
      continue;
    }
    if (inRow === perRow) {
      height += tallest;
      inRow = 0;
      tallest = 0;
    }
    inRow += 1;
    tallest = Math.max(tallest, head + Math.ceil(count / unit) * pitch + gapY);
  }
  return height + tallest - gapY;
}

/** Where everything is; made by `arrange`. */
export class Layout {
  constructor(groups, counts, shape, pitch) {
    const { width, hasHeadings } = shape;
    const { head, all, unit, stride, cardWidth, perRow, gapY } = measure(counts, shape, pitch);
    this.groups = groups;
    this.pitch = pitch;
    this.gap = gapOf(pitch);
    this.head = head;
    this.stride = stride;
    this.groupX = new Int32Array(groups.length);
    this.groupY = new Int32Array(groups.length);
    this.groupColumns = new Int32Array(groups.length);
    this.groupWidth = new Int32Array(groups.length);
    this.rowOfGroup = new Int32Array(groups.length);
    /** Of each row: where it begins, and its first group; one more entry ends the last row. */
    this.rowY = [];
    this.rowFirst = [];
    this.rowIsSection = [];
    let y = MARGIN;
    let inRow = 0;
    let tallest = 0;
    for (let group = 0; group < groups.length; group += 1) {
      const section = isSection(counts[group], hasHeadings);
      if (group === 0 || section || inRow === perRow || inRow < 0) {
        y += tallest;
        tallest = 0;
        inRow = 0;
        this.rowY.push(y);
        this.rowFirst.push(group);
        this.rowIsSection.push(section);
      }
      const columns = section ? all : unit;
      this.groupX[group] = MARGIN + inRow * stride;
      this.groupY[group] = y;
      this.groupColumns[group] = columns;
      this.groupWidth[group] = section ? width : cardWidth;
      this.rowOfGroup[group] = this.rowY.length - 1;
      tallest = Math.max(tallest, head + Math.ceil(counts[group] / columns) * pitch + gapY);
      inRow = section ? -1 : inRow + 1;
    }
    this.height = y + tallest - (groups.length > 0 ? gapY : 0) + MARGIN;
    this.rowY.push(this.height);
    this.rowFirst.push(groups.length);
    this.slots = groups.reduce((sum, group) => sum + group.count, 0);
  }

  /** The last row that begins at or above y; the first, if none does. */
  rowAt(y) {
    let low = 0;
    let high = this.rowY.length - 2;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.rowY[middle] <= y) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  /** The group of a slot. */
  groupOf(slot) {
    let low = 0;
    let high = this.groups.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.groups[middle].first <= slot) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  /** Where a slot's tile is. */
  placeOf(slot) {
    const group = this.groupOf(slot);
    const i = slot - this.groups[group].first;
    const columns = this.groupColumns[group];
    return {
      group,
      x: this.groupX[group] + (i % columns) * this.pitch,
      y: this.groupY[group] + this.head + Math.floor(i / columns) * this.pitch,
    };
  }

  /** The slot whose tile is at a point, or -1. */
  slotAt(x, y) {
    if (this.groups.length === 0) {
      return -1;
    }
    const row = this.rowAt(y);
    const at = this.rowFirst[row] + (this.rowIsSection[row] ? 0 : Math.floor((x - MARGIN) / this.stride));
    if (at < this.rowFirst[row] || at >= this.rowFirst[row + 1]) {
      return -1;
    }
    const column = Math.floor((x - this.groupX[at]) / this.pitch);
    const line = Math.floor((y - this.groupY[at] - this.head) / this.pitch);
    if (column < 0 || column >= this.groupColumns[at] || line < 0) {
      return -1;
    }
    const i = line * this.groupColumns[at] + column;
    return i < this.groups[at].count ? this.groups[at].first + i : -1;
  }

  /** The slot above (-1) or below (1) another; the slot itself at the edge. */
  vertical(slot, direction) {
    const { group, x } = this.placeOf(slot);
    const columns = this.groupColumns[group];
    const i = slot - this.groups[group].first;
    const lines = Math.ceil(this.groups[group].count / columns);
    const line = Math.floor(i / columns) + direction;
    if (line >= 0 && line < lines) {
      return this.groups[group].first + Math.min(line * columns + (i % columns), this.groups[group].count - 1);
    }
    const row = this.rowOfGroup[group] + direction;
    if (row < 0 || row >= this.rowY.length - 1) {
      return slot;
    }
    let next = this.rowFirst[row];
    while (next + 1 < this.rowFirst[row + 1] && this.groupX[next + 1] <= x) {
      next += 1;
    }
    const { first, count } = this.groups[next];
    const width = this.groupColumns[next];
    const column = Math.min(Math.max(0, Math.floor((x - this.groupX[next]) / this.pitch)), width - 1);
    const target = direction > 0 ? column : (Math.ceil(count / width) - 1) * width + column;
    return first + Math.min(target, count - 1);
  }
}
