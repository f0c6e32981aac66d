// A keyed count with a map and a timer, straight on the contract: no SDK, only what QuickJS is given by wit/operator.wit.
//
// A record is the CBOR array [key, text]. Each is counted for its key (value state that rides along) and its text for the key (map
// state), and both counts are emitted. At the end of each ten seconds of event time in which a key had records, a timer emits its
// words with their counts and forgets them. The texts `crash` and `reject` do what they say.
//
// A timer that falls due within the call is left to the host, which then runs the call again in two.
import diagnostics from "wasmill:operator/diagnostics@0.1.0";
import state from "wasmill:operator/state@0.1.0";

const COUNT = 0; // The states, by their index.
const WORDS = 1;
const SET = 1;
const EVENT_TIME = 0;
const WINDOW_MS = 10_000;
const PAGE = 2;
const NOTHING = new Uint8Array(0);

/** Bytes that grow. */
class Buffer {
  bytes = new Uint8Array(64);
  view = new DataView(this.bytes.buffer);
  length = 0;

  more(length) {
    const at = this.length;
    this.length += length;
    if (this.length > this.bytes.length) {
      const grown = new Uint8Array(2 * this.length);
      grown.set(this.bytes);
      this.bytes = grown;
      this.view = new DataView(grown.buffer);
    }
    return at;
  }

  u8(value) {
    const at = this.more(1);
    this.bytes[at] = value;
  }

  u16(value) {
    const at = this.more(2);
    this.view.setUint16(at, value, true);
  }

  u32(value) {
    const at = this.more(4);
    this.view.setUint32(at, value, true);
  }

  s64(value) {
    const at = this.more(8);
    this.view.setBigInt64(at, BigInt(value), true);
  }

  raw(bytes) {
    const at = this.more(bytes.length);
    this.bytes.set(bytes, at);
  }

  take() { return this.bytes.slice(0, this.length); }

  /** The head of a CBOR item; numbers are exact to 2^53. */
  head(major, value) {
    if (value < 24) return this.u8((major << 5) | value);
    const size = value < 0x100 ? 1 : value < 0x10000 ? 2 : value < 0x100000000 ? 4 : 8;
    this.u8((major << 5) | (24 + Math.log2(size)));
    const at = this.more(size);
    if (size === 1) this.view.setUint8(at, value);
    else if (size === 2) this.view.setUint16(at, value);
    else if (size === 4) this.view.setUint32(at, value);
    else this.view.setBigUint64(at, BigInt(value));
  }

  text(bytes) {
    this.head(3, bytes.length);
    this.raw(bytes);
  }

  name(ascii) { this.text(Uint8Array.from(ascii, (c) => c.charCodeAt(0))); }
}

const view = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
const u32s = (bytes) => Array.from({ length: bytes.length / 4 }, (_, i) => view(bytes).getUint32(4 * i, true));
const s64s = (bytes) => Array.from({ length: bytes.length / 8 }, (_, i) => Number(view(bytes).getBigInt64(8 * i, true)));

/** The byte strings of a column. */
function values(column) {
  const bytes = Uint8Array.from(column.bytes);
  let begin = 0;
  return u32s(Uint8Array.from(column.ends)).map((end) => bytes.subarray(begin, (begin = end)));
}

/** The value in a CBOR head of `major`, and the bytes behind it. */
function head(bytes, major) {
  if (bytes[0] >> 5 !== major) throw new Error(`CBOR of major type ${bytes[0] >> 5} where ${major} is due`);
  const info = bytes[0] & 31;
  if (info < 24) return [info, bytes.subarray(1)];
  const at = view(bytes);
  const value = [() => at.getUint8(1), () => at.getUint16(1), () => at.getUint32(1), () => Number(at.getBigUint64(1))][info - 24]();
  return [value, bytes.subarray(1 + (1 << (info - 24)))];
}

function text(bytes) {
  const [length, rest] = head(bytes, 3);
  return [rest.subarray(0, length), rest.subarray(length)];
}

const is = (bytes, word) => bytes.length === word.length && bytes.every((byte, i) => byte === word.charCodeAt(i));

/** The effects of a call as they come to be. */
class Effects {
  outputs = new Buffer();
  origins = new Buffer();
  values = new Buffer();
  ends = new Buffer();
  timers = { origins: new Buffer(), operations: new Buffer(), domains: new Buffer(), times: new Buffer(), tags: new Buffer() };
  rejected = new Buffer();
  reasons = [];

  emit(origin) {
    this.outputs.u16(0);
    this.origins.u32(origin);
    this.ends.u32(this.values.length);
  }

  setTimer(origin, time) {
    this.timers.origins.u32(origin);
    this.timers.operations.u8(SET);
    this.timers.domains.u8(EVENT_TIME);
    this.timers.times.s64(time);
    this.timers.tags.u32(0);
  }

  reject(origin, reason) {
    this.rejected.u32(origin);
    this.reasons.push(reason);
  }

  handOver(consumed, values) {
    const { origins, operations, domains, times, tags } = this.timers;
    return {
      consumed,
      emits: {
        outputs: this.outputs.take(),
        origins: this.origins.take(),
        keys: null,
        times: null,
        values: { bytes: this.values.take(), ends: this.ends.take() },
        absentValues: NOTHING,
        headers: null,
      },
      values,
      timers: {
        origins: origins.take(),
        operations: operations.take(),
        domains: domains.take(),
        times: times.take(),
        tags: tags.take(),
      },
      rejects: { origins: this.rejected.take(), reasons: this.reasons },
    };
  }
}

/** The count of each key of the call, and the record that is to write it: of several, the one with the greatest time. */
function rideAlong(eager) {
  const [{ state, values: column }] = eager;
  if (state !== COUNT) throw new Error(`state ${state} rides along`);
  const present = Uint8Array.from(column.present);
  return values(column.values).map((value, slot) => ({ count: present[slot] ? head(value, 0)[0] : 0, time: 0, origin: null }));
}

function writeBack(counts) {
  const [origins, operations, bytes, ends] = [new Buffer(), new Buffer(), new Buffer(), new Buffer()];
  for (const { count, origin } of counts) {
    if (origin === null) continue;
    origins.u32(origin);
    operations.u8(SET);
    bytes.head(0, count);
    ends.u32(bytes.length);
  }
  return [{ state: COUNT, origins: origins.take(), operations: operations.take(), values: { bytes: bytes.take(), ends: ends.take() } }];
}

/** Counts a word for the key of the record. */
function countWord(record, word) {
  const found = state.mapGet(WORDS, record, word);
  const seen = 1 + (found === null ? 0 : head(Uint8Array.from(found), 0)[0]);
  const value = new Buffer();
  value.head(0, seen);
  state.mapPut(WORDS, record, word, value.take());
  return seen;
}

const windowEnd = (time) => (Math.floor(time / WINDOW_MS) + 1) * WINDOW_MS - 1;

function toldToCrash() {
  throw new Error("told to crash");
}

/** The function, which logs what it throws: an exception by itself is a trap without a word. */
const telling = (call) => (...given) => {
  try {
    return call(...given);
  } catch (error) {
    diagnostics.log("error", `${error}\n${error.stack}`);
    throw error;
  }
};

export const process = telling((input, now, batch, eager) => {
  const done = new Effects();
  const counts = rideAlong(eager);
  const [keys, slots, times] = [values(batch.keys), u32s(Uint8Array.from(batch.slots)), s64s(Uint8Array.from(batch.times))];
  values(batch.values).forEach((value, record) => {
    const [word] = text(text(head(value, 4)[1])[1]);
    if (is(word, "reject")) return done.reject(record, "told to reject");
    const counted = counts[slots[record]];
    if (counted.origin === null || times[record] >= counted.time) {
      counted.time = times[record];
      counted.origin = record;
    }
    counted.count += 1;
    const seen = countWord(record, word);
    if (is(word, "crash")) toldToCrash();
    done.values.head(5, 4);
    done.values.name("key");
    done.values.text(keys[slots[record]]);
    done.values.name("seen");
    done.values.head(0, seen);
    done.values.name("text");
    done.values.text(word);
    done.values.name("count");
    done.values.head(0, counted.count);
    done.emit(record);
    done.setTimer(record, windowEnd(times[record]));
  });
  return done.handOver(slots.length, writeBack(counts));
});

/** Takes the key's words out of the map, page by page: [word, count] in the order of the words' bytes. */
function takeWords(timer) {
  const words = [];
  const bounds = { lower: null, lowerOpen: false, upper: null, upperOpen: false, reverse: false, limit: PAGE };
  for (;;) {
    const page = state.mapPage(WORDS, timer, bounds);
    const [keys, found] = [values(page.keys), values(page.values)];
    keys.forEach((key, entry) => words.push([key, head(found[entry], 0)[0]]));
    if (!page.more) break;
    bounds.lower = keys.at(-1);
    bounds.lowerOpen = true;
  }
  state.mapClear(WORDS, timer);
  return words;
}

export const fire = telling((now, timers, eager) => {
  const done = new Effects();
  const counts = rideAlong(eager);
  const [keys, slots, times] = [values(timers.keys), u32s(Uint8Array.from(timers.slots)), s64s(Uint8Array.from(timers.times))];
  slots.forEach((slot, timer) => {
    done.values.head(5, 4);
    done.values.name("at");
    if (times[timer] < 0) done.values.head(1, -1 - times[timer]);
    else done.values.head(0, times[timer]);
    done.values.name("key");
    done.values.text(keys[slot]);
    done.values.name("count");
    done.values.head(0, counts[slot].count);
    done.values.name("words");
    const words = takeWords(timer);
    done.values.head(4, words.length);
    for (const [word, count] of words) {
      done.values.head(4, 2);
      done.values.text(word);
      done.values.head(0, count);
    }
    done.emit(timer);
  });
  return done.handOver(slots.length, []);
});

export function describe() {
  const state = (name, kind, mapKeyType) => ({
    name,
    kind,
    version: 1,
    codec: "cbor",
    valueType: '{"format":"uint64","minimum":0,"type":"integer"}',
    mapKeyType,
    lazy: false,
    ridesWith: [],
    ttl: null,
    renamedFrom: [],
    migratesFrom: [],
  });
  return {
    name: "probe",
    version: "0.1.0",
    keyType: '{"type":"string"}',
    inputs: [{ name: "in", broadcast: false, headers: false }],
    outputs: [{ name: "out", broadcast: false, headers: false }],
    config: [],
    states: [state("count", "value-state", null), state("words", "map-state", '{"type":"string"}')],
    listsTimers: false,
  };
}

export function configure(config, place) {}

function noUse() {
  throw { kind: "fatal", message: "this operator has no use for it" };
}

export const migrate = noUse;
export const rekey = noUse;
export const merge = noUse;
