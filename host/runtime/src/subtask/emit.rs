//! Turns the effects of a call into records for the outputs.
//!
//! Owns where a watermark lies among the emits: after those of the records it followed. The effects were checked against the
//! call before; what would still contradict it is left out, never a panic.

use wasmill_core::record::{Header, RecordBatch, WatermarkMark};
use wasmill_core::time::Timestamp;

use super::access::CallState;
use crate::guest::contract::{self, Emits};
use crate::guest::packed;

/// The call that emitted: what an emit without key or time of its own takes from its origin.
pub(super) struct Origins<'a> {
    pub call: &'a CallState,
    pub times: &'a [Timestamp],
    pub absent_key: Option<u32>,
}

/// Appends the emits to `outputs`, one batch an output, with the watermarks between them.
pub(super) fn emit(emits: &Emits, origins: &Origins<'_>, advances: &[(u32, Timestamp)], outputs: &mut [RecordBatch]) {
    let ascending = packed::u32s(&emits.origins).is_sorted();
    let mut advances = advances.iter().peekable();
    let mut headers = emits.headers.iter().flat_map(each_header).peekable();
    let mut absent_values = packed::u32s(&emits.absent_values).peekable();
    let fields = packed::u16s(&emits.outputs).zip(packed::u32s(&emits.origins));
    let mut start = 0;
    for (index, ((output, origin), end)) in fields.zip(packed::u32s(&emits.values.ends)).enumerate() {
        // Emits out of order cannot be told apart by watermark: it then follows them all.
        while let Some((_, watermark)) = advances.next_if(|(after, _)| ascending && *after <= origin) {
            mark(outputs, *watermark);
        }
        let value = &emits.values.bytes[start as usize..end as usize];
        start = end;
        let absent = absent_values.next_if_eq(&(index as u32)).is_some();
        let slot = origins.call.slots.get(origin as usize).copied();
        let own_key =
            || slot.filter(|slot| origins.absent_key != Some(*slot)).map(|slot| origins.call.keys.get(slot as usize));
        let key = match &emits.keys {
            None => own_key(),
            Some(keys) => keys
                .present
                .get(index)
                .and_then(|&present| if present == 1 { contract::value_at(&keys.values, index) } else { None }),
        };
        let own_time = || origins.times.get(origin as usize).copied().unwrap_or(Timestamp::MIN);
        let time = emits.times.as_ref().and_then(|times| packed::time_at(times, index)).unwrap_or_else(own_time);
        let Some(batch) = outputs.get_mut(usize::from(output)) else { continue };
        while let Some((_, name, value)) = headers.next_if(|(record, ..)| *record as usize <= index) {
            batch.headers.push(Header { record: batch.len() as u32, name: name.to_vec(), value: value.to_vec() });
        }
        batch.push(key, time, if absent { None } else { Some(value) });
    }
    for (_, watermark) in advances {
        mark(outputs, *watermark);
    }
}

/// The watermark follows what is in each batch so far.
pub(super) fn mark(outputs: &mut [RecordBatch], watermark: Timestamp) {
    for batch in outputs {
        batch.marks.push(WatermarkMark { after: batch.len() as u32, watermark });
    }
}

fn each_header(headers: &contract::Headers) -> impl Iterator<Item = (u32, &[u8], &[u8])> {
    packed::u32s(&headers.records).enumerate().map(|(index, record)| {
        let name = contract::value_at(&headers.names, index).unwrap_or_default();
        (record, name, contract::value_at(&headers.values, index).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use wasmill_core::key_group::KeyHash;
    use wasmill_core::record::OptionalColumn;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn emits(origins: &[u32], outputs: &[u16], values: &[&[u8]]) -> Emits {
        let mut column = contract::empty_column();
        values.iter().for_each(|value| contract::push_value(&mut column, value));
        Emits {
            outputs: packed::pack_u16s(outputs),
            origins: packed::pack_u32s(origins),
            keys: None,
            times: None,
            values: column,
            absent_values: Vec::new(),
            headers: None,
        }
    }

    fn call() -> CallState {
        let mut call = CallState::new(None);
        for key in [&b"a"[..], b""] {
            call.keys.push(key);
            call.hashes.push(KeyHash::of(key));
        }
        call.slots = vec![0, 1, 0];
        call
    }

    fn keys(column: &OptionalColumn) -> Vec<Option<&[u8]>> {
        column.iter().collect()
    }

    #[test]
    fn an_emit_takes_key_and_time_from_its_origin() {
        let call = call();
        let origins = Origins { call: &call, times: &[at(1), at(2), at(3)], absent_key: Some(1) };
        let mut outputs = vec![RecordBatch::default(), RecordBatch::default()];
        let mut effects = emits(&[0, 1, 2], &[0, 0, 1], &[b"x", b"y", b"z"]);
        effects.absent_values = packed::pack_u32s(&[1]);
        emit(&effects, &origins, &[], &mut outputs);
        assert_eq!(keys(&outputs[0].keys), [Some(&b"a"[..]), None]);
        assert_eq!(outputs[0].times, [at(1), at(2)]);
        assert_eq!(keys(&outputs[0].values), [Some(&b"x"[..]), None]);
        assert_eq!((outputs[1].times[0], outputs[1].values.get(0)), (at(3), Some(&b"z"[..])));
    }

    #[test]
    fn a_watermark_follows_the_emits_of_the_records_it_followed() {
        let call = call();
        let origins = Origins { call: &call, times: &[at(1), at(2), at(3)], absent_key: None };
        let positions = |order: &[u32]| {
            let mut outputs = vec![RecordBatch::default()];
            emit(&emits(order, &[0, 0, 0], &[b"", b"", b""]), &origins, &[(1, at(10)), (3, at(20))], &mut outputs);
            outputs[0].marks.iter().map(|mark| (mark.after, mark.watermark.as_millis())).collect::<Vec<_>>()
        };
        assert_eq!(positions(&[0, 1, 2]), [(1, 10), (3, 20)]);
        assert_eq!(positions(&[2, 1, 0]), [(3, 10), (3, 20)]);
    }
}
