//! Does what a record's steps say with timers, a map and a list, and tells what it finds.
//!
//! | step | what it does |
//! |---|---|
//! | `set T`, `delete T` | an event timer |
//! | `in D` | a processing timer D milliseconds from now; tells its time |
//! | `count`, `clear` | a value |
//! | `put A B SIZE`, `remove A B` | map entries of the numbers from A to B, B left out |
//! | `scan`, `scan-back`, `scan-remove` | walks the map; tells how many entries there are and whether they are in order; removes the even ones |
//! | `append A B SIZE`, `walk`, `empty` | the same with a list |

use serde::{Deserialize, Serialize};
use wasmill_guest::prelude::*;

/// The operator.
#[derive(Operator)]
#[operator(key = String, timers)]
pub struct Steps {
    count: Value<u64>,
    map: Map<u64, Vec<u8>, Raw>,
    list: List<Vec<u8>, Raw>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, default)]
    steps: Vec<&'a str>,
}

#[derive(Serialize)]
struct Told<'a> {
    key: &'a str,
    told: &'a str,
}

impl Steps {
    fn step(&mut self, key: &str, step: &str, ctx: &mut Context<'_>) -> Result {
        let mut words = step.split(' ');
        let what = words.next().unwrap_or_default();
        let numbers = words.map(str::parse::<i64>).collect::<Result<Vec<i64>, _>>()?;
        let at = |place: usize| numbers.get(place).copied().unwrap_or_default();
        let (from, to, size) = (at(0) as u64, at(1) as u64, at(2) as usize);
        match what {
            "set" => ctx.set_timer(Timestamp::from_millis(at(0)), 0),
            "delete" => ctx.delete_timer(Timestamp::from_millis(at(0)), 0),
            "in" => {
                let time = ctx.processing_time().as_millis() + at(0);
                tell(ctx, key, &format!("set {time}"))?;
                ctx.set_processing_timer(Timestamp::from_millis(time), 0)
            }
            "count" => self.count.update(ctx, |count| *count += 1).map(drop),
            "clear" => self.count.clear(ctx),
            "put" => (from..to).try_for_each(|number| self.map.insert(ctx, &number, bytes(number, size))),
            "remove" => (from..to).try_for_each(|number| self.map.remove(ctx, &number)),
            "scan" | "scan-back" | "scan-remove" => self.scan(key, what, ctx),
            "append" => (from..to).try_for_each(|number| self.list.append(ctx, &bytes(number, size))),
            "walk" => self.walk(key, ctx),
            "empty" => self.list.clear(ctx),
            _ => Err(Error::fatal(format_args!("there is no step `{step}`"))),
        }
    }

    fn scan(&mut self, key: &str, what: &str, ctx: &mut Context<'_>) -> Result {
        let mut scan = if what == "scan-back" { self.map.iter().reverse() } else { self.map.iter() };
        let (mut entries, mut sum, mut before, mut in_order) = (0, 0, None::<u64>, true);
        while let Some((number, value)) = self.map.next(ctx, &mut scan)? {
            in_order &= before.is_none_or(|before| if what == "scan-back" { number < before } else { number > before });
            in_order &= value.starts_with(&number.to_be_bytes());
            (entries, sum, before) = (entries + 1, sum + number, Some(number));
            if what == "scan-remove" && number % 2 == 0 {
                self.map.remove(ctx, &number)?;
            }
        }
        tell(ctx, key, &format!("{what}: {entries} entries, sum {sum}, in order {in_order}"))
    }

    fn walk(&mut self, key: &str, ctx: &mut Context<'_>) -> Result {
        let (mut walk, mut elements, mut in_order) = (self.list.iter(), 0u64, true);
        let len = self.list.len(ctx)?;
        while let Some(element) = self.list.next(ctx, &mut walk)? {
            in_order &= element.starts_with(&elements.to_be_bytes());
            elements += 1;
        }
        tell(ctx, key, &format!("walk: {elements} of {len} elements, in order {in_order}"))
    }
}

/// The number, and behind it as many zeros as make up the size.
fn bytes(number: u64, size: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(size.max(8), 0);
    bytes
}

fn tell(ctx: &mut Context<'_>, key: &str, told: &str) -> Result {
    ctx.emit(&Told { key, told })
}

impl Process for Steps {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let Line { steps } = record.value()?;
        let key = record.key()?;
        steps.into_iter().try_for_each(|step| self.step(key, step, ctx))
    }
}

impl OnTimer for Steps {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let count = self.count.get(ctx)?.map_or("none".to_owned(), |count| count.to_string());
        tell(ctx, timer.key()?, &format!("fired {}, count {count}", timer.time()))
    }
}

operator!(Steps);
