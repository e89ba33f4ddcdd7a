//! Output of results, for people and for programs.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

use serde_json::Value;

use crate::failure::Code;

/// Prints a line, as `println!` does; a closed pipe is no error.
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::out(format_args!("{}\n", format_args!($($text)*))) };
}

/// The same without a line end.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::out(format_args!($($text)*)) };
}

/// Writes to standard output. On an error other than a closed pipe the command ends.
pub fn out(text: Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_fmt(text).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            // Written directly: another print macro could fail in the same way.
            let _ = writeln!(
                std::io::stderr(),
                "error: cannot write to standard output: {e}"
            );
            std::process::exit(Code::Io as i32);
        }
        _ => {}
    }
}

/// Prints an object: as JSON, or as indented names and values.
pub fn value(value: &Value, json: bool) {
    if json {
        outln!("{value}");
    } else {
        out!("{}", text(value));
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
