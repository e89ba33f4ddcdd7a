//! Results for people and for programs.

use serde_json::Value;

/// Prints an object: as JSON, or as indented names and values.
pub(crate) fn value(value: &Value, json: bool) {
    if json {
        println!("{value}");
    } else {
        print!("{}", text(value));
    }
}

/// An object as lines of `name: value`, nested ones indented.
fn text(value: &Value) -> String {
    let mut out = String::new();
    lines(value, 0, &mut out);
    out
}

fn lines(value: &Value, depth: usize, out: &mut String) {
    let Value::Object(fields) = value else {
        out.push_str(&format!("{:depth$}{}\n", "", scalar(value)));
        return;
    };
    let width = fields.keys().map(String::len).max().unwrap_or_default();
    for (name, value) in fields {
        let name = name.replace('_', " ");
        match value {
            Value::Object(_) => {
                out.push_str(&format!("{:depth$}{name}:\n", ""));
                lines(value, depth + 2, out);
            }
            _ => out.push_str(&format!("{:depth$}{name:width$}  {}\n", "", scalar(value))),
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        Value::Array(all) => all.iter().map(scalar).collect::<Vec<_>>().join(" "),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_objects_are_indented_and_values_line_up() {
        let shown =
            text(&json!({ "a": 1, "long_name": "x", "part": { "list": ["p", "q"], "on": true } }));
        assert_eq!(
            shown,
            "a          1\nlong name  x\npart:\n  list  p q\n  on    yes\n"
        );
    }
}
