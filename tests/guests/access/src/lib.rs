//! One access of state a record, of the kind that its input names: what `make bench-state` measures.
//!
//! An access changes what is there: a number that counts, an element more, a timer more. A record's value is 8 bytes: a number
//! for the map key, the element, or how many milliseconds after the record its timer is due. Nothing is emitted.

use wasmill_guest::Ahead;
use wasmill_guest::prelude::*;

/// The operator.
#[derive(Operator)]
#[operator(
    timers,
    input("none"),
    input("value-eager"),
    input("value-lazy"),
    input("map-get"),
    input("map-many"),
    input("list-append"),
    input("timer")
)]
pub struct Access {
    #[state(rides_with("value-eager"))]
    eager: Value<u64>,
    #[state(lazy)]
    lazy: Value<u64>,
    map: Map<u64, u64>,
    list: List<u64>,
}

/// Positions of the inputs that more than one function asks for.
const MAP_MANY: u16 = 4;

impl Process for Access {
    fn look_ahead(&mut self, batch: &mut Ahead<'_, '_>) -> Result {
        let entries = batch.records().filter(|record| record.input() == MAP_MANY);
        let entries = entries.filter_map(|record| Some((record, number(&record)?)));
        self.map.prefetch(batch, entries)
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let number = number(&record).ok_or_else(|| Error::reject("a value is 8 bytes"))?;
        match record.input() {
            0 => {}
            1 => {
                let count = self.eager.get(ctx)?.unwrap_or(0);
                self.eager.set(ctx, count + 1)?;
            }
            2 => {
                let count = self.lazy.get(ctx)?.unwrap_or(0);
                self.lazy.set(ctx, count + 1)?;
            }
            3 | MAP_MANY => {
                let count = self.map.get(ctx, &number)?.unwrap_or(0);
                self.map.insert(ctx, &number, count + 1)?;
            }
            5 => self.list.append(ctx, &number)?,
            _ => {
                let due = record.time().as_millis().saturating_add_unsigned(number);
                ctx.set_timer(Timestamp::from_millis(due), 0)?;
            }
        }
        Ok(())
    }
}

impl OnTimer for Access {
    fn fire(&mut self, _: Timer<'_>, _: &mut Context<'_>) -> Result {
        Ok(())
    }
}

fn number(record: &Record<'_>) -> Option<u64> {
    Some(u64::from_le_bytes(record.value_bytes()?.try_into().ok()?))
}

operator!(Access);
