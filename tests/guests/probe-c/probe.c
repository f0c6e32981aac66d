// A keyed count with a map and a timer, straight on the contract: no SDK, only what wit-bindgen makes of wit/operator.wit.
//
// A record is the CBOR array [key, text]. Each is counted for its key (value state that rides along) and its text for the key (map
// state), and both counts are emitted. At the end of each ten seconds of event time in which a key had records, a timer emits its
// words with their counts and forgets them. The texts `crash` and `reject` do what they say.
#include <stdlib.h>
#include <string.h>

#include "operator.h"

enum { COUNT = 0, WORDS = 1 };  // The states, by their index.
enum { CLEAR = 0, SET = 1 };    // Operations.
enum { WINDOW_MS = 10000, PAGE = 2 };

// Bytes that grow. What the host gets is freed by the bindings after it was read.
typedef struct {
  uint8_t *ptr;
  size_t len, room;
} buffer;

static uint8_t *more(buffer *to, size_t len) {
  if (to->len + len > to->room) {
    to->room = 2 * to->room + len;
    to->ptr = realloc(to->ptr, to->room);
    if (!to->ptr) abort();
  }
  to->len += len;
  return to->ptr + to->len - len;
}

static void put(buffer *to, const void *bytes, size_t len) {
  if (len) memcpy(more(to, len), bytes, len);
}

static void put_u8(buffer *to, uint8_t value) { put(to, &value, 1); }
static void put_u16(buffer *to, uint16_t value) { put(to, &value, 2); }
static void put_u32(buffer *to, uint32_t value) { put(to, &value, 4); }
static void put_s64(buffer *to, int64_t value) { put(to, &value, 8); }

static uint32_t u32_at(const uint8_t *packed, size_t index) {
  uint32_t value;
  memcpy(&value, packed + 4 * index, 4);
  return value;
}

static int64_t s64_at(const uint8_t *packed, size_t index) {
  int64_t value;
  memcpy(&value, packed + 8 * index, 8);
  return value;
}

typedef struct {
  const uint8_t *ptr;
  size_t len;
} bytes;

static bytes column_at(const operator_column_t *column, size_t index) {
  size_t begin = index ? u32_at(column->ends.ptr, index - 1) : 0;
  return (bytes){column->bytes.ptr + begin, u32_at(column->ends.ptr, index) - begin};
}

// CBOR: the head of an item, and what this operator reads and writes of it.
static void put_head(buffer *to, uint8_t major, uint64_t value) {
  uint8_t size = value < 24 ? 0 : value < 256 ? 1 : value < 65536 ? 2 : value < 4294967296 ? 4 : 8;
  static const uint8_t info[] = {0, 24, 25, 0, 26, 0, 0, 0, 27};
  put_u8(to, major << 5 | (size ? info[size] : (uint8_t)value));
  while (size--) put_u8(to, value >> 8 * size);
}

static void put_text(buffer *to, bytes text) {
  put_head(to, 3, text.len);
  put(to, text.ptr, text.len);
}

static void put_name(buffer *to, const char *name) { put_text(to, (bytes){(const uint8_t *)name, strlen(name)}); }

static uint64_t take_head(bytes *from, uint8_t major) {
  if (!from->len || *from->ptr >> 5 != major) abort();
  uint8_t info = *from->ptr & 31, size = info < 24 ? 0 : 1 << (info - 24);
  if (info > 27 || from->len < 1u + size) abort();
  uint64_t value = size ? 0 : info;
  for (uint8_t i = 1; i <= size; i++) value = value << 8 | from->ptr[i];
  from->ptr += 1 + size;
  from->len -= 1 + size;
  return value;
}

static bytes take_text(bytes *from) {
  uint64_t len = take_head(from, 3);
  if (len > from->len) abort();
  bytes text = {from->ptr, len};
  from->ptr += len;
  from->len -= len;
  return text;
}

static bool is(bytes text, const char *word) { return text.len == strlen(word) && !memcmp(text.ptr, word, text.len); }

// The effects of a call as they come to be.
typedef struct {
  buffer outputs, origins, values, ends;                         // Emits.
  buffer timer_origins, timer_sets, domains, times, tags;        // Timers.
  buffer rejected, reasons;
} effects;

static void emit(effects *done, uint32_t origin) {
  put_u16(&done->outputs, 0);
  put_u32(&done->origins, origin);
  put_u32(&done->ends, done->values.len);
}

#define LIST(type, from) ((type){(from).ptr, (from).len})

static void hand_over(effects *done, uint32_t consumed, operator_effects_t *ret) {
  memset(ret, 0, sizeof *ret);
  ret->consumed = consumed;
  ret->emits.outputs = LIST(wasmill_operator_types_u16s_t, done->outputs);
  ret->emits.origins = LIST(wasmill_operator_types_u32s_t, done->origins);
  ret->emits.values.bytes = LIST(operator_list_u8_t, done->values);
  ret->emits.values.ends = LIST(wasmill_operator_types_u32s_t, done->ends);
  ret->timers.origins = LIST(wasmill_operator_types_u32s_t, done->timer_origins);
  ret->timers.operations = LIST(operator_list_u8_t, done->timer_sets);
  ret->timers.domains = LIST(operator_list_u8_t, done->domains);
  ret->timers.times = LIST(wasmill_operator_types_s64s_t, done->times);
  ret->timers.tags = LIST(wasmill_operator_types_u32s_t, done->tags);
  ret->rejects.origins = LIST(wasmill_operator_types_u32s_t, done->rejected);
  ret->rejects.reasons.ptr = (operator_string_t *)done->reasons.ptr;
  ret->rejects.reasons.len = done->reasons.len / sizeof(operator_string_t);
}

// The count of each key of the call, and the record that is to write it: of several, the one with the greatest time.
typedef struct {
  uint64_t count;
  int64_t time;
  uint32_t origin;
  bool changed;
} counted;

static counted *ride_along(operator_list_eager_t *eager, size_t keys) {
  counted *counts = calloc(keys + 1, sizeof *counts);
  if (!counts || eager->len != 1 || eager->ptr[0].state != COUNT) abort();
  for (size_t slot = 0; slot < keys; slot++) {
    if (!eager->ptr[0].values.present.ptr[slot]) continue;
    bytes value = column_at(&eager->ptr[0].values.values, slot);
    counts[slot].count = take_head(&value, 0);
  }
  return counts;
}

static void write_back(counted *counts, size_t keys, operator_effects_t *ret) {
  buffer origins = {0}, operations = {0}, values = {0}, ends = {0};
  for (size_t slot = 0; slot < keys; slot++) {
    if (!counts[slot].changed) continue;
    put_u32(&origins, counts[slot].origin);
    put_u8(&operations, SET);
    put_head(&values, 0, counts[slot].count);
    put_u32(&ends, values.len);
  }
  free(counts);
  wasmill_operator_types_value_writes_t *writes = malloc(sizeof *writes);
  if (!writes) abort();
  writes->state = COUNT;
  writes->origins = LIST(wasmill_operator_types_u32s_t, origins);
  writes->operations = LIST(operator_list_u8_t, operations);
  writes->values.bytes = LIST(operator_list_u8_t, values);
  writes->values.ends = LIST(wasmill_operator_types_u32s_t, ends);
  ret->values.ptr = writes;
  ret->values.len = 1;
}

// Counts a word for the key of the record.
static uint64_t count_word(uint32_t origin, bytes word) {
  operator_list_u8_t key = {(uint8_t *)word.ptr, word.len}, found;
  uint64_t seen = 1;
  if (wasmill_operator_state_map_get(WORDS, origin, &key, &found)) {
    bytes value = {found.ptr, found.len};
    seen += take_head(&value, 0);
    operator_list_u8_free(&found);
  }
  buffer value = {0};
  put_head(&value, 0, seen);
  operator_list_u8_t put = LIST(operator_list_u8_t, value);
  wasmill_operator_state_map_put(WORDS, origin, &key, &put);
  free(value.ptr);
  return seen;
}

static int64_t window_end(int64_t time) {
  int64_t into = time % WINDOW_MS;
  return time - into - (into < 0 ? WINDOW_MS : 0) + WINDOW_MS - 1;
}

__attribute__((noinline)) static void told_to_crash(void) { __builtin_trap(); }

static void reject(effects *done, uint32_t origin) {
  put_u32(&done->rejected, origin);
  operator_string_t reason;
  operator_string_dup(&reason, "told to reject");
  put(&done->reasons, &reason, sizeof reason);
}

static void count(effects *done, operator_batch_t *batch, counted *counts, uint32_t record) {
  uint32_t slot = u32_at(batch->slots.ptr, record);
  int64_t time = s64_at(batch->times.ptr, record);
  bytes value = column_at(&batch->values, record);
  if (take_head(&value, 4) != 2) abort();
  take_text(&value);
  bytes text = take_text(&value);
  if (is(text, "reject")) return reject(done, record);
  counted *key = &counts[slot];
  if (!key->changed || time >= key->time) {
    key->time = time;
    key->origin = record;
  }
  key->changed = true;
  key->count++;
  uint64_t seen = count_word(record, text);
  if (is(text, "crash")) told_to_crash();
  put_head(&done->values, 5, 4);
  put_name(&done->values, "key");
  put_text(&done->values, column_at(&batch->keys, slot));
  put_name(&done->values, "seen");
  put_head(&done->values, 0, seen);
  put_name(&done->values, "text");
  put_text(&done->values, text);
  put_name(&done->values, "count");
  put_head(&done->values, 0, key->count);
  emit(done, record);
  put_u32(&done->timer_origins, record);
  put_u8(&done->timer_sets, SET);
  put_u8(&done->domains, WASMILL_OPERATOR_TYPES_TIME_DOMAIN_EVENT);
  put_s64(&done->times, window_end(time));
  put_u32(&done->tags, 0);
}

bool exports_operator_process(uint16_t input, operator_now_t *now, operator_batch_t *batch, operator_list_eager_t *eager,
                              operator_effects_t *ret, operator_fault_t *err) {
  effects done = {0};
  size_t keys = batch->keys.ends.len / 4;
  counted *counts = ride_along(eager, keys);
  int64_t due = INT64_MAX;
  uint32_t record = 0;
  // Run by run: where a timer that was set here falls due at the next one, the call ends before it.
  for (size_t run = 0; run < batch->watermarks.len; run++) {
    if (batch->watermarks.ptr[run].watermark >= due) break;
    for (; record < batch->watermarks.ptr[run].until; record++) {
      size_t before = done.times.len;
      count(&done, batch, counts, record);
      if (done.times.len > before && s64_at(done.times.ptr + before, 0) < due) due = s64_at(done.times.ptr + before, 0);
    }
  }
  hand_over(&done, record, ret);
  write_back(counts, keys, ret);
  operator_batch_free(batch);
  operator_list_eager_free(eager);
  return true;
}

// Writes the key's words as an array of [word, count], and forgets them.
static void take_words(buffer *to, uint32_t origin) {
  buffer pairs = {0};
  uint64_t words = 0;
  wasmill_operator_state_bounds_t bounds = {.limit = PAGE};
  wasmill_operator_state_page_t page;
  do {
    wasmill_operator_state_map_page(WORDS, origin, &bounds, &page);
    size_t count = page.keys.ends.len / 4;
    for (size_t entry = 0; entry < count; entry++) {
      bytes value = column_at(&page.values, entry);
      put_head(&pairs, 4, 2);
      put_text(&pairs, column_at(&page.keys, entry));
      put_head(&pairs, 0, take_head(&value, 0));
    }
    words += count;
    free(bounds.lower.val.ptr);
    if (count) {
      // The next page begins behind the last key.
      bytes last = column_at(&page.keys, count - 1);
      buffer lower = {0};
      put(&lower, last.ptr, last.len);
      bounds.lower.is_some = bounds.lower_open = true;
      bounds.lower.val = LIST(operator_list_u8_t, lower);
    } else {
      bounds.lower.val.ptr = NULL;
    }
    wasmill_operator_state_page_free(&page);
  } while (page.more);
  free(bounds.lower.val.ptr);
  wasmill_operator_state_map_clear(WORDS, origin);
  put_head(to, 4, words);
  put(to, pairs.ptr, pairs.len);
  free(pairs.ptr);
}

bool exports_operator_fire(operator_now_t *now, operator_firing_t *timers, operator_list_eager_t *eager, operator_effects_t *ret,
                           operator_fault_t *err) {
  effects done = {0};
  counted *counts = ride_along(eager, timers->keys.ends.len / 4);
  uint32_t count = timers->slots.len / 4;
  for (uint32_t timer = 0; timer < count; timer++) {
    uint32_t slot = u32_at(timers->slots.ptr, timer);
    int64_t at = s64_at(timers->times.ptr, timer);
    put_head(&done.values, 5, 4);
    put_name(&done.values, "at");
    if (at < 0)
      put_head(&done.values, 1, -1 - at);
    else
      put_head(&done.values, 0, at);
    put_name(&done.values, "key");
    put_text(&done.values, column_at(&timers->keys, slot));
    put_name(&done.values, "count");
    put_head(&done.values, 0, counts[slot].count);
    put_name(&done.values, "words");
    take_words(&done.values, timer);
    emit(&done, timer);
  }
  free(counts);
  hand_over(&done, count, ret);
  operator_firing_free(timers);
  operator_list_eager_free(eager);
  return true;
}

static operator_string_t text(const char *of) {
  operator_string_t text;
  operator_string_dup(&text, of);
  return text;
}

static wasmill_operator_types_list_port_t port(const char *name) {
  wasmill_operator_types_port_t *port = calloc(1, sizeof *port);
  if (!port) abort();
  port->name = text(name);
  return (wasmill_operator_types_list_port_t){port, 1};
}

void exports_operator_describe(operator_descriptor_t *ret) {
  memset(ret, 0, sizeof *ret);
  ret->name = text("probe");
  ret->version = text("0.1.0");
  ret->key_type = (operator_option_string_t){true, text("{\"type\":\"string\"}")};
  ret->inputs = port("in");
  ret->outputs = port("out");
  wasmill_operator_types_state_descriptor_t *states = calloc(2, sizeof *states);
  if (!states) abort();
  for (int state = COUNT; state <= WORDS; state++) {
    states[state].version = 1;
    states[state].codec = WASMILL_OPERATOR_TYPES_CODEC_CBOR;
    states[state].value_type = text("{\"format\":\"uint64\",\"minimum\":0,\"type\":\"integer\"}");
  }
  states[COUNT].name = text("count");
  states[COUNT].kind = WASMILL_OPERATOR_TYPES_STATE_KIND_VALUE_STATE;
  states[WORDS].name = text("words");
  states[WORDS].kind = WASMILL_OPERATOR_TYPES_STATE_KIND_MAP_STATE;
  states[WORDS].map_key_type = (operator_option_string_t){true, text("{\"type\":\"string\"}")};
  ret->states = (wasmill_operator_types_list_state_descriptor_t){states, 2};
}

bool exports_operator_configure(operator_string_t *config, operator_subtask_t *place, operator_fault_t *err) {
  operator_string_free(config);
  return true;
}

static bool no_use(operator_fault_t *err) {
  err->kind = WASMILL_OPERATOR_TYPES_FAULT_KIND_FATAL;
  operator_string_dup(&err->message, "this operator has no use for it");
  return false;
}

bool exports_operator_migrate(operator_string_t *state, uint32_t source_version, uint32_t target_version, operator_column_t *keys,
                              operator_column_t *map_keys, operator_column_t *entries, operator_migrated_t *ret,
                              operator_fault_t *err) {
  return no_use(err);
}

bool exports_operator_rekey(uint32_t source_version, uint32_t target_version, operator_column_t *keys, operator_migrated_t *ret,
                            operator_fault_t *err) {
  return no_use(err);
}

bool exports_operator_merge(operator_string_t *state, operator_column_t *keys, operator_column_t *first, operator_column_t *second,
                            operator_column_t *ret, operator_fault_t *err) {
  return no_use(err);
}
