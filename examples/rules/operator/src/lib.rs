//! Transactions of accounts held against rules that change while the job runs.
//!
//! A rule tells what an account may spend within some minutes. Rules are broadcast state, kept by the time from which on they are in
//! force; transactions wait in a map until the watermark has reached them, when all rules in force by then have come. So it does
//! not matter which of the two sources is read faster.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wasmill_guest::prelude::*;

/// How far a rule looks back at most.
const LONGEST: Duration = Duration::from_hours(1);
/// The second input.
const RULES: u16 = 1;
/// The operator's only kind of timer.
const DUE: u32 = 0;

/// The operator.
#[derive(Operator)]
#[operator(key = String, input("transactions"), input("rules", broadcast), output("alerts"), output("late"), timers)]
pub struct Rules {
    /// What a rule says, by the time from which on it does and its name. The same in every subtask.
    rules: Broadcast<(Timestamp, String), Rule>,
    /// Cents by time and number of arrival: transactions that wait for the watermark, and those that still count.
    spent: Map<(Timestamp, u64), u64>,
    /// How many came since there was none: those of one time stay in the order in which they came.
    arrived: Value<u64>,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Rule {
    /// How many cents are too many; none ends the rule.
    over: Option<u64>,
    /// Within so many minutes, an hour at most.
    minutes: u64,
}

impl Rule {
    fn within(&self) -> Duration {
        Duration::from_mins(self.minutes).min(LONGEST)
    }
}

#[derive(Deserialize)]
struct Change {
    rule: String,
    over: Option<u64>,
    #[serde(default)]
    minutes: u64,
}

#[derive(Deserialize)]
struct Transaction {
    cents: u64,
}

#[derive(Serialize)]
struct Alert<'a> {
    account: &'a str,
    at: Timestamp,
    rule: &'a str,
    cents: u64,
    over: u64,
}

impl Process for Rules {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        if record.input() == RULES {
            let Change { rule, over, minutes } = record.value()?;
            return self.rules.insert(ctx, &(record.time(), rule), Rule { over, minutes });
        }
        if record.time() <= ctx.watermark() {
            return ctx.to("late").forward(&record);
        }
        let number = *self.arrived.update(ctx, |arrived| *arrived += 1)?;
        let Transaction { cents } = record.value()?;
        self.spent.insert(ctx, &(record.time(), number), cents)?;
        ctx.set_timer(record.time(), DUE)
    }
}

impl OnTimer for Rules {
    /// Holds the transactions of the timer's time against the rules that are in force then, and forgets those that count no more.
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let now = timer.time();
        let rules = self.in_force(ctx, now)?;
        let mut known: Vec<(Timestamp, u64)> = Vec::new();
        let mut due = self.spent.range(..=(now, u64::MAX));
        while let Some((place, cents)) = self.spent.next(ctx, &mut due)? {
            if place.0.plus(LONGEST) <= now {
                self.spent.remove(ctx, &place)?;
                continue;
            }
            known.push((place.0, cents));
            if place.0 == now {
                alert(ctx, timer.key()?, now, &rules, &known)?;
            }
        }
        if let Some((oldest, _)) = known.first() {
            return ctx.set_timer(oldest.plus(LONGEST), DUE);
        }
        let mut later = self.spent.iter().limit(1);
        if self.spent.next(ctx, &mut later)?.is_none() { self.arrived.clear(ctx) } else { Ok(()) }
    }
}

impl Rules {
    /// What each rule says at a time, which the watermark has reached; rules that have come and begin later do not count.
    fn in_force(&mut self, ctx: &mut Context<'_>, at: Timestamp) -> Result<BTreeMap<String, Rule>> {
        let by_time = self.rules.all(ctx)?.into_iter().take_while(|((from, _), _)| *from <= at);
        Ok(by_time.map(|((_, name), rule)| (name, rule)).collect())
    }
}

/// Tells of each rule that the latest of these transactions breaks, all of them by then within the time of the longest.
fn alert(
    ctx: &mut Context<'_>,
    account: &str,
    at: Timestamp,
    rules: &BTreeMap<String, Rule>,
    spent: &[(Timestamp, u64)],
) -> Result {
    for (name, rule) in rules {
        let Some(over) = rule.over else { continue };
        let counted = spent.iter().filter(|(time, _)| *time == at || time.plus(rule.within()) > at);
        let cents = counted.map(|(_, cents)| cents).sum();
        if cents > over {
            ctx.emit(&Alert { account, at, rule: name, cents, over })?;
        }
    }
    Ok(())
}

operator!(Rules);
