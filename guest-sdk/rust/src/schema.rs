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
    let mut value = schema.to_value();
    value.sort_all_objects();
    value.to_string()
}

fn keep_the_shape(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    for key in ["title", "description", "examples", "default"] {
        object.remove(key);
    }
    if let Some(Value::Array(required)) = object.get_mut("required") {
        required.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    }
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
