//! Just enough JSON to read cargo's messages: a value is a slice of the text, taken apart on demand.

/// The raw value of `key` in an object.
pub fn field<'a>(object: &'a str, key: &str) -> Option<&'a str> {
    parts(object, '{', '}')?.into_iter().find_map(|entry| {
        let (name, value) = entry.strip_prefix('"')?.split_once('"')?;
        (name == key).then(|| value.trim_start().strip_prefix(':').map(str::trim))?
    })
}

/// The raw values of an array; none for anything else.
pub fn elements(array: &str) -> Vec<&str> {
    parts(array, '[', ']').unwrap_or_default()
}

/// The text of a string value; `None` for any other value.
pub fn string(value: &str) -> Option<String> {
    let body = value.trim().strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::with_capacity(body.len());
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match chars.next()? {
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'u' => {
                let digits: String = chars.by_ref().take(4).collect();
                text.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            plain => text.push(plain),
        }
    }
    Some(text)
}

/// The top-level, comma-separated parts between two brackets.
fn parts(text: &str, open: char, close: char) -> Option<Vec<&str>> {
    let body = text.trim().strip_prefix(open)?.strip_suffix(close)?;
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0u32);
    let (mut in_string, mut escaped) = (false, false);
    for (at, c) in body.char_indices() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => in_string = true,
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(body[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = body[start..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARTIFACT: &str = r#"{"reason":"compiler-artifact","target":{"kind":["test"],"crate_types":["bin"],"name":"file, \"quoted\" \\","executable":"inner"},
        "profile":{"opt_level":"3","test":true},"features":["a","b,c"],"filenames":["/t/x"],"executable":"/t/deps/x-\u00e9\\1","fresh": false}"#;

    #[test]
    fn reads_top_level_fields_only() {
        assert_eq!(field(ARTIFACT, "fresh"), Some("false"));
        assert_eq!(field(ARTIFACT, "executable").and_then(string).as_deref(), Some("/t/deps/x-é\\1"));
        assert_eq!(field(ARTIFACT, "kind"), None);
    }

    #[test]
    fn descends_into_objects_and_arrays() {
        let target = field(ARTIFACT, "target").unwrap_or_default();
        assert_eq!(field(target, "name").and_then(string).as_deref(), Some("file, \"quoted\" \\"));
        assert_eq!(elements(field(target, "kind").unwrap_or_default()), [r#""test""#]);
        assert_eq!(elements(field(ARTIFACT, "features").unwrap_or_default()), [r#""a""#, r#""b,c""#]);
    }

    #[test]
    fn refuses_what_is_not_there() {
        assert_eq!(string("null"), None);
        assert_eq!(field("[1, 2]", "a"), None);
        assert_eq!(field("", "a"), None);
        assert_eq!(field("{}", "a"), None);
        assert!(elements("{}").is_empty());
        assert!(elements("[]").is_empty());
    }
}
