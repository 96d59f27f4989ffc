/**
 * The fleet as the server's events tell it, and what is drawn of each GPU in flat arrays.
 *
 * A tile is a GPU with everything on it; the MIG devices of a GPU are parts of its tile. Nothing here knows the page.
 */

/** Before the key of a label, in a grouping by that label. */
export const LABEL_GROUP = "label:";
/** The words of health, each at its code. A tile has the gravest code of its GPU and its devices. */
export const HEALTH = ["Healthy", "Degraded", "Cordoned", "Paused", "Disputed", "Unhealthy"];
const CORDONED = HEALTH.indexOf("Cordoned");
/** How many parts of a tile are told apart. A GPU may have more holders; the last part then stands for the rest. */
export const MOST_PARTS = 8;
/** Parts are measured in this fraction of the tile's height. */
export const WHOLE = 10000;
/** Instead of a namespace: a MIG device that nobody holds. */
export const NOBODY = 0xffff;
/** Instead of a percentage. */
export const UNKNOWN = 0xff;
/** The namespace of pods that the viewer may not see, and of what is held by no pod that was named. */
export const SOMEBODY = 0;

const LAST_NAMESPACE = NOBODY - 1;
/** Of the free or unseen; no namespace of Kubernetes begins so. */
const FREE_KEY = "~0";
const HIDDEN_KEY = "~1";

/** Text with its numbers padded, so that plain comparison puts node-2 before node-10. */
function naturalKey(text) {
  return text.replace(/\d+/g, (digits) => digits.padStart(10, "0"));
}

function healthCode(word) {
  const code = HEALTH.indexOf(word);
  return code < 0 ? HEALTH.length - 1 : code;
}

/** Which fraction of a GPU or MIG device each of its pods holds: of memory, else of compute, else of its slots. */
function sharesOf(gpu) {
  const { pods, slots } = gpu.state;
  const isWhole = gpu.mode === "whole" || (gpu.parent !== "" && gpu.slots <= 1);
  return pods.map(([, , memory, cores]) => {
    if (isWhole) {
      return 1 / pods.length;
    }
    if (gpu.memory_mib > 0 && memory > 0) {
      return memory / gpu.memory_mib;
    }
    if (gpu.cores_percent > 0 && cores > 0) {
      return cores / gpu.cores_percent;
    }
    return 1 / Math.max(gpu.slots, slots, pods.length, 1);
  });
}

/**
 * What of its memory and compute a GPU or MIG device gives away, in MiB and percent. A pod that has it alone has all.
 */
function heldOf(gpu) {
  const { state } = gpu;
  const isWhole = state.pods.length > 0 && (gpu.mode === "whole" || (gpu.parent !== "" && gpu.slots <= 1));
  return {
    memory: isWhole ? gpu.memory_mib : Math.min(state.memory_mib, gpu.memory_mib),
    cores: isWhole ? gpu.cores_percent : Math.min(state.cores_percent, gpu.cores_percent),
  };
}

/** A fraction as a percentage that is 0 only for nothing and 100 only for all. */
function percent(held, total) {
  if (total <= 0 || held <= 0) {
    return 0;
  }
  return held >= total ? 100 : Math.min(99, Math.max(1, Math.round((100 * held) / total)));
}

/** The whole fleet. `version` grows whenever tiles are numbered anew. */
export class Fleet {
  constructor() {
    this.version = 0;
    /** Whether GPUs came or went since tiles were last numbered. */
    this.isStale = false;
    /** The keys of all labels that say where nodes are. */
    this.topologyKeys = new Set();
    /** By uuid, which percentage is in use of the memory that pods hold of a GPU or MIG device, where it is known. */
    this.used = new Map();
    this.namespaces = new Map([["", SOMEBODY]]);
    this.namespaceNames = [""];
    this.clear();
  }

  /** Forgets all nodes; tiles stay as they were until they are numbered anew. */
  clear() {
    this.nodes = new Map();
    this.gpuCount = 0;
    this.isStale = true;
    if (this.owners === undefined) {
      this.number();
    }
  }

  /** Takes an event `nodes`; answers the tiles that changed. New GPUs have none before `number`. */
  applyNodes({ nodes = [], gone = [] }) {
    const changed = [];
    for (const name of gone) {
      const node = this.nodes.get(name);
      if (node !== undefined) {
        this.gpuCount -= node.gpus.length;
        this.nodes.delete(name);
        this.isStale = true;
      }
    }
    for (const node of nodes) {
      for (const key of Object.keys(node.topology)) {
        this.topologyKeys.add(key);
      }
      const old = this.nodes.get(node.name);
      if (old !== undefined && old.tiles !== null && isSameHardware(old, node)) {
        // The same object stays, because tiles point to it.
        old.cordoned = node.cordoned;
        old.topology = node.topology;
        old.maintenance = node.maintenance;
        old.gpus = node.gpus;
        for (const tile of new Set(old.tiles)) {
          this.encode(tile);
          changed.push(tile);
        }
      } else {
        this.gpuCount += node.gpus.length - (old === undefined ? 0 : old.gpus.length);
        this.nodes.set(node.name, { ...node, key: naturalKey(node.name), tiles: null });
        this.isStale = true;
      }
    }
    return changed;
  }

  /** Takes an event `gpus`; answers the tiles that changed. */
  applyGpus({ gpus }) {
    const changed = [];
    for (const [name, position, state] of gpus) {
      const node = this.nodes.get(name);
      if (node === undefined || node.gpus[position] === undefined) {
        continue;
      }
      node.gpus[position].state = state;
      if (node.tiles !== null) {
        const tile = node.tiles[position];
        this.encode(tile);
        changed.push(tile);
      }
    }
    return changed;
  }

  /** Takes what is in use: node, uuid and percentage of each GPU that is held. */
  applyUsed(gpus) {
    this.used = new Map(gpus.map(([, uuid, percentage]) => [uuid, percentage]));
    for (let tile = 0; tile < this.count; tile += 1) {
      this.#encodeUsed(tile);
    }
  }

  /** Numbers the tiles: by node, and on a node as the driver numbers its GPUs. */
  number() {
    const nodes = [...this.nodes.values()].sort((a, b) => (a.key < b.key ? -1 : Number(a.key > b.key)));
    /** Of each tile: its node, and where in the node's list its GPU and the MIG devices on it are. */
    this.owners = [];
    this.members = [];
    for (const node of nodes) {
      this.#numberNode(node);
    }
    const count = this.owners.length;
    this.count = count;
    this.health = new Uint8Array(count);
    /** The health of a tile's GPU without its MIG devices. */
    this.cardHealth = new Uint8Array(count);
    this.memoryPercent = new Uint8Array(count);
    this.computePercent = new Uint8Array(count);
    this.usedPercent = new Uint8Array(count);
    this.memoryHeld = new Float32Array(count);
    this.memoryTotal = new Float32Array(count);
    this.partCount = new Uint8Array(count);
    this.partStart = new Uint16Array(count * MOST_PARTS);
    this.partEnd = new Uint16Array(count * MOST_PARTS);
    this.partNamespace = new Uint16Array(count * MOST_PARTS);
    /** Of each part: the health of its MIG device, or of the GPU if that is worse. */
    this.partHealth = new Uint8Array(count * MOST_PARTS);
    this.hardwareText = new Array(count).fill("");
    this.podText = new Array(count).fill("");
    for (let tile = 0; tile < count; tile += 1) {
      this.encode(tile);
    }
    this.version += 1;
    this.isStale = false;
  }

  #numberNode(node) {
    const { gpus } = node;
    node.tiles = new Int32Array(gpus.length);
    const isDevice = (position) => Number(gpus[position].parent !== "");
    // Devices have the index of their GPU, which comes before them, wherever the list has it.
    const order = gpus
      .map((_, position) => position)
      .sort((a, b) => gpus[a].index - gpus[b].index || isDevice(a) - isDevice(b) || a - b);
    const byUuid = new Map();
    for (const position of order) {
      const gpu = gpus[position];
      const uuid = gpu.parent === "" ? gpu.uuid : gpu.parent;
      let tile = byUuid.get(uuid);
      if (tile === undefined) {
        tile = this.owners.length;
        byUuid.set(uuid, tile);
        this.owners.push(node);
        this.members.push([]);
      }
      this.members[tile].push(position);
      node.tiles[position] = tile;
    }
  }

  /** Writes what is drawn of a tile into the arrays. */
  encode(tile) {
    const node = this.owners[tile];
    const members = this.members[tile].map((position) => node.gpus[position]);
    const card = members[0].parent === "" ? members[0] : null;
    this.cardHealth[tile] = Math.max(
      node.cordoned ? CORDONED : 0,
      card === null ? 0 : healthCode(card.state.health),
    );
    this.health[tile] = members.reduce(
      (worst, gpu) => Math.max(worst, healthCode(gpu.state.health)),
      this.cardHealth[tile],
    );
    this.podText[tile] = "";
    this.partCount[tile] = 0;
    const devices = members.filter((gpu) => gpu.parent !== "");
    const parts = devices.length > 0 ? devices : members;
    let memory = 0;
    let cores = 0;
    let sum = 0;
    let coresSum = 0;
    for (const gpu of parts) {
      const held = heldOf(gpu);
      memory += held.memory;
      cores += held.cores;
      sum += gpu.memory_mib;
      coresSum += gpu.cores_percent;
    }
    const total = card === null ? sum : Math.max(sum, card.memory_mib);
    const coresTotal = card === null ? Math.max(coresSum, 100) : Math.max(coresSum, card.cores_percent);
    if (devices.length > 0) {
      let from = 0;
      for (const gpu of devices) {
        const size = total > 0 && gpu.memory_mib > 0 ? gpu.memory_mib / total : 1 / devices.length;
        this.#encodeParts(tile, gpu, from, size);
        if (gpu.state.pods.length === 0) {
          this.#addPart(tile, from, Math.min(1, from + size), NOBODY, healthCode(gpu.state.health));
        }
        from += size;
      }
    } else {
      this.#encodeParts(tile, card, 0, 1);
    }
    this.#encodeUsed(tile);
    this.memoryHeld[tile] = memory;
    this.memoryTotal[tile] = total;
    this.computePercent[tile] = percent(cores, coresTotal);
    this.memoryPercent[tile] = total > 0 ? percent(memory, total) : percent(this.#filled(tile), WHOLE);
  }

  #encodeUsed(tile) {
    const { gpus } = this.owners[tile];
    let held = 0;
    let used = 0;
    for (const position of this.members[tile]) {
      const share = this.used.get(gpus[position].uuid);
      if (share !== undefined) {
        const { memory } = heldOf(gpus[position]);
        held += memory;
        used += memory * share;
      }
    }
    this.usedPercent[tile] = held > 0 ? Math.round(used / held) : UNKNOWN;
  }

  #encodeParts(tile, gpu, from, size) {
    const health = healthCode(gpu.state.health);
    const shares = sharesOf(gpu);
    const sum = shares.reduce((all, share) => all + share, 0);
    // More than all can be promised where pods may use more memory than there is.
    const scale = sum > 1 ? 1 / sum : 1;
    let at = from;
    gpu.state.pods.forEach(([namespace], i) => {
      const end = Math.min(from + size, at + shares[i] * scale * size);
      this.#addPart(tile, at, end, this.#namespaceId(namespace), health);
      at = end;
    });
    const held = gpu.memory_mib > 0 ? Math.min(1, gpu.state.memory_mib / gpu.memory_mib) : 0;
    if (held - Math.min(sum, 1) > 0.005) {
      this.#addPart(tile, at, from + held * size, SOMEBODY, health);
    }
  }

  #addPart(tile, start, end, namespace, health) {
    const count = this.partCount[tile];
    const at = tile * MOST_PARTS + Math.min(count, MOST_PARTS - 1);
    this.partEnd[at] = Math.round(Math.min(1, end) * WHOLE);
    if (count < MOST_PARTS) {
      this.partStart[at] = Math.round(Math.min(1, start) * WHOLE);
      this.partNamespace[at] = namespace;
      this.partHealth[at] = Math.max(health, this.cardHealth[tile]);
      this.partCount[tile] = count + 1;
      return;
    }
    this.partHealth[at] = Math.max(this.partHealth[at], health);
    if (this.partNamespace[at] !== namespace && namespace !== NOBODY) {
      this.partNamespace[at] = SOMEBODY;
    }
  }

  #filled(tile) {
    let sum = 0;
    for (let at = tile * MOST_PARTS; at < tile * MOST_PARTS + this.partCount[tile]; at += 1) {
      sum += this.partNamespace[at] === NOBODY ? 0 : this.partEnd[at] - this.partStart[at];
    }
    return sum;
  }

  #namespaceId(name) {
    let id = this.namespaces.get(name);
    if (id === undefined) {
      if (this.namespaceNames.length > LAST_NAMESPACE) {
        return SOMEBODY;
      }
      id = this.namespaceNames.length;
      this.namespaces.set(name, id);
      this.namespaceNames.push(name);
    }
    return id;
  }

  /** The GPU of a tile, or its first MIG device, if the server lists the devices only. */
  gpuOf(tile) {
    return this.owners[tile].gpus[this.members[tile][0]];
  }

  /** The uuid of the GPU of a tile. */
  uuidOf(tile) {
    const gpu = this.gpuOf(tile);
    return gpu.parent === "" ? gpu.uuid : gpu.parent;
  }

  /** The tile of a GPU or of a MIG device on it, or -1. */
  tileOf(uuid) {
    for (let tile = 0; tile < this.count; tile += 1) {
      const { gpus } = this.owners[tile];
      if (this.members[tile].some((position) => gpus[position].uuid === uuid || gpus[position].parent === uuid)) {
        return tile;
      }
    }
    return -1;
  }

  /** How much of each namespace there is, by id, in tiles. */
  namespaceTotals() {
    const totals = new Float64Array(this.namespaceNames.length);
    for (let tile = 0; tile < this.count; tile += 1) {
      const first = tile * MOST_PARTS;
      for (let at = first; at < first + this.partCount[tile]; at += 1) {
        if (this.partNamespace[at] !== NOBODY) {
          totals[this.partNamespace[at]] += (this.partEnd[at] - this.partStart[at]) / WHOLE;
        }
      }
    }
    return totals;
  }

  /** Whether a tile is one that the filter asks for: all of its words, in lower case, and a code of health or -1. */
  matches(tile, words, health) {
    if (health >= 0 && this.health[tile] !== health) {
      return false;
    }
    return words.every((word) => this.#hardware(tile).includes(word) || this.#pods(tile).includes(word));
  }

  #hardware(tile) {
    if (this.hardwareText[tile] === "") {
      const node = this.owners[tile];
      const gpus = this.members[tile].map((position) => node.gpus[position]);
      this.hardwareText[tile] = [node.name, this.uuidOf(tile), ...gpus.flatMap((gpu) => [gpu.model, gpu.uuid])]
        .join("\n")
        .toLowerCase();
    }
    return this.hardwareText[tile];
  }

  #pods(tile) {
    if (this.podText[tile] === "") {
      const { gpus } = this.owners[tile];
      const pods = this.members[tile].flatMap((position) => gpus[position].state.pods);
      this.podText[tile] = `\n${pods.map(([namespace, pod]) => `${namespace}/${pod}`).join("\n")}`.toLowerCase();
    }
    return this.podText[tile];
  }

  /** By which tiles are grouped; `grouping` is a word of the toolbar. */
  groupKey(tile, grouping) {
    switch (grouping) {
      case "node":
        return this.owners[tile].name;
      case "model":
        return this.gpuOf(tile).model;
      case "namespace":
        return this.#largestHolder(tile);
      default: {
        // The address may name anything, such as a property that all objects have.
        const label = grouping.slice(LABEL_GROUP.length);
        const { topology } = this.owners[tile];
        return grouping.startsWith(LABEL_GROUP) && Object.hasOwn(topology, label) ? topology[label] : "";
      }
    }
  }


  #largestHolder(tile) {
    const first = tile * MOST_PARTS;
    const held = new Map();
    for (let at = first; at < first + this.partCount[tile]; at += 1) {
      const namespace = this.partNamespace[at];
      if (namespace !== NOBODY) {
        held.set(namespace, (held.get(namespace) ?? 0) + this.partEnd[at] - this.partStart[at]);
      }
    }
    let best = NOBODY;
    for (const [namespace, size] of held) {
      if (best === NOBODY || size > held.get(best)) {
        best = namespace;
      }
    }
    if (best === NOBODY) {
      return FREE_KEY;
    }
    return best === SOMEBODY ? HIDDEN_KEY : this.namespaceNames[best];
  }

  /**
   * The tiles that the filter asks for, in groups.
   *
   * @returns {{order: Int32Array, groups: {key: string, label: string, first: number, count: number}[]}}
   */
  select(grouping, words, health) {
    const buckets = new Map();
    for (let tile = 0; tile < this.count; tile += 1) {
      if ((words.length === 0 && health < 0) || this.matches(tile, words, health)) {
        const key = this.groupKey(tile, grouping);
        const bucket = buckets.get(key);
        if (bucket === undefined) {
          buckets.set(key, [tile]);
        } else {
          bucket.push(tile);
        }
      }
    }
    let entries = [...buckets];
    if (grouping !== "node") {
      // Nodes are in order already.
      const keys = new Map(entries.map(([key]) => [key, naturalKey(key)]));
      entries = entries.sort(([a], [b]) => (keys.get(a) < keys.get(b) ? -1 : 1));
    }
    const groups = [];
    const order = [];
    for (const [key, tiles] of entries) {
      groups.push({ key, label: labelOf(key, grouping), first: order.length, count: tiles.length });
      for (const tile of tiles) {
        order.push(tile);
      }
    }
    return { order: Int32Array.from(order), groups };
  }
}

function labelOf(key, grouping) {
  if (grouping === "namespace" && key === FREE_KEY) {
    return "free";
  }
  if (grouping === "namespace" && key === HIDDEN_KEY) {
    return "others, which you may not see";
  }
  if (grouping.startsWith(LABEL_GROUP) && key === "") {
    return "without this label";
  }
  return key === "" ? "unknown" : key;
}

function isSameHardware(old, node) {
  return (
    old.gpus.length === node.gpus.length &&
    old.gpus.every(
      (gpu, i) =>
        gpu.uuid === node.gpus[i].uuid &&
        gpu.parent === node.gpus[i].parent &&
        gpu.index === node.gpus[i].index &&
        gpu.model === node.gpus[i].model,
    )
  );
}

/** How many namespaces have a colour of their own. */
export const NAMESPACE_COLOURS = 8;

function hashOf(text) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  }
  return hash >>> 0;
}

/**
 * Which namespace has which colour: the largest have one each, by a hash of the name, so that a namespace most often
 * has the same one tomorrow. Who has a colour keeps it while it holds anything.
 */
export class NamespaceColours {
  constructor() {
    this.taken = new Array(NAMESPACE_COLOURS).fill(null);
    this.ranked = 0;
    this.byId = new Uint8Array(0);
  }

  /** Looks at the fleet again; answers whether any namespace has another colour than before. */
  update(fleet) {
    const totals = fleet.namespaceTotals();
    const all = totals.reduce((sum, total) => sum + total, 0);
    const before = this.taken.join("\n");
    if (all > 2 * this.ranked) {
      // The fleet is still arriving, and the largest of its first nodes are not those of all.
      this.taken.fill(null);
      this.ranked = all;
    }
    const names = fleet.namespaceNames;
    this.taken = this.taken.map((name) => (name !== null && totals[fleet.namespaces.get(name)] > 0 ? name : null));
    const candidates = names
      .map((name, id) => ({ name, total: totals[id] }))
      .filter(({ name, total }) => name !== "" && total > 0 && !this.taken.includes(name))
      .sort((a, b) => b.total - a.total || (a.name < b.name ? -1 : 1));
    for (const { name } of candidates.slice(0, this.taken.filter((other) => other === null).length)) {
      let colour = hashOf(name) % NAMESPACE_COLOURS;
      while (this.taken[colour] !== null) {
        colour = (colour + 1) % NAMESPACE_COLOURS;
      }
      this.taken[colour] = name;
    }
    this.byId = new Uint8Array(names.length).fill(NAMESPACE_COLOURS);
    this.taken.forEach((name, colour) => {
      if (name !== null) {
        this.byId[fleet.namespaces.get(name)] = colour;
      }
    });
    this.hasOthers = totals.some((total, id) => total > 0 && this.byId[id] === NAMESPACE_COLOURS);
    return before !== this.taken.join("\n");
  }

  /** The colour of a namespace's id; the last one is that of all who have none. */
  of(id) {
    return id < this.byId.length ? this.byId[id] : NAMESPACE_COLOURS;
  }
}
