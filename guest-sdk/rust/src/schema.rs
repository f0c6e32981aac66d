//! Types as JSON Schemas, for `describe`.
//!
//! Owns that a schema says what is stored and no more: comments, titles and examples are left out and everything is in one
//! order, so that two builds of one type compare equal. Reached from `describe` alone.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// The type's schema as compact JSON.
#[must_use]
pub fn of<T: JsonSchema + ?Sized>() -> String {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(keep_the_shape).transform(&mut schema);
    let mut out = String::new();
    write_in_order(schema.as_value(), &mut out);
    out
}

/// Takes away what does not change what is stored.
fn keep_the_shape(schema: &mut Schema) {
    for key in ["title", "description", "examples", "default"] {
        schema.remove(key);
    }
}

/// Compact JSON with keys ascending, and the required ones too. (One small function for both: this code is in every component.)
fn write_in_order(value: &Value, out: &mut String) {
    match value {
        Value::Object(object) => {
            let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
            keys.sort_unstable();
            separated(out, ['{', '}'], keys, |key, out| {
                write_text(key, out);
                out.push(':');
                match &object[key] {
                    Value::Array(names) if key == "required" => {
                        let mut names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                        names.sort_unstable();
                        separated(out, ['[', ']'], names, write_text);
                    }
                    other => write_in_order(other, out),
                }
            });
        }
        Value::Array(items) => separated(out, ['[', ']'], items, write_in_order),
        Value::String(text) => write_text(text, out),
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

fn separated<T>(
    out: &mut String,
    [open, close]: [char; 2],
    items: impl IntoIterator<Item = T>,
    write: impl Fn(T, &mut String),
) {
    out.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(item, out);
    }
    out.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Documented.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "its schema alone is of interest")]
    struct Totals {
        /// Also documented.
        title: String,
        count: u64,
        mean: Option<f64>,
    }

    #[test]
    fn comments_and_order_do_not_change_a_type() {
        #[derive(JsonSchema)]
        #[expect(dead_code, reason = "its schema alone is of interest")]
        struct Reordered {
            count: u64,
            mean: Option<f64>,
            title: String,
        }
        assert_eq!(of::<Totals>(), of::<Reordered>());
        assert_eq!(
            of::<Totals>(),
            concat!(
                r#"{"properties":{"count":{"format":"uint64","minimum":0,"type":"integer"},"#,
                r#""mean":{"format":"double","type":["number","null"]},"title":{"type":"string"}},"#,
                r#""required":["count","title"],"type":"object"}"#
            )
        );
    }
}
