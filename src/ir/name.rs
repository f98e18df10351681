//! Names and other text from documents or callers, as they appear in a listing or a message.
//!
//! A reader must be able to trust a listing. An invisible character can make two names look the same. A character that
//! reverses the writing direction or ends the line can make a name look like the rest of its line. Names must not
//! contain such characters, which is a rule of the [check](crate::check). They are escaped wherever unchecked text is
//! shown.

/// The most characters that an argument's name may have.
pub(crate) const LONGEST: usize = 64;

/// How much of a line is shown in a message.
pub(crate) const SHOWN_LINE: usize = 160;
/// How much of a word is shown in a message.
const SHOWN_WORD: usize = 64;
/// How much of another library's message is shown.
pub(crate) const SHOWN_MESSAGE: usize = 1000;

/// The characters without a visible shape, first and last of each range: Unicode's general categories Cf (format,
/// including the controls of bidirectional text), Zl and Zp (separators of lines and of paragraphs), and the characters
/// with the property Default_Ignorable_Code_Point (Unicode 16.0). `char` itself knows control characters.
const UNSEEN: [(char, char); 25] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Whether a name is allowed for a program's own definition: a letter, then at most 62 letters, digits or underscores.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    let head = letters.next().is_some_and(|c| c.is_ascii_alphabetic());
    head && name.len() <= 63 && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a character must be escaped in a listing.
pub(crate) fn is_unseen(c: char) -> bool {
    c.is_control() || UNSEEN.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// The most edits between a misspelt name and the intended one. An edit changes, adds or omits a letter, or exchanges
/// two.
const MISSPELT: usize = 2;

/// The name that was probably intended: the one with the fewest edits, if these are few for its length.
pub(crate) fn nearest<'n>(given: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    if given.len() > LONGEST * 4 {
        return None;
    }
    let given = given.to_lowercase();
    let edits = known.map(|name| (strsim::damerau_levenshtein(&given, &name.to_lowercase()), name));
    let near = edits.filter(|(edits, name)| *edits <= MISSPELT && 2 * edits < name.chars().count());
    near.min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

/// [`nearest`] as the end of a message.
pub(crate) fn meant<'n>(given: &str, known: impl Iterator<Item = &'n str>) -> String {
    nearest(given, known).map(|name| format!("; did you mean `{}`?", word(name))).unwrap_or_default()
}

/// [`meant`] for a message of serde, which quotes the unknown word and then the known ones.
pub(crate) fn meant_by_document(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    match quoted.next() {
        Some(given) if message.starts_with("unknown variant") || message.starts_with("unknown field") => meant(given, quoted),
        _ => String::new(),
    }
}

/// The fault and the cure of a name with invisible characters; `None` if all are visible.
pub(crate) fn fault(name: &str) -> Option<String> {
    let c = name.chars().find(|c| is_unseen(*c))?;
    Some(format!(
        "remove U+{:04X} from it: a name has no control, format, bidirectional or line-separator character",
        u32::from(c)
    ))
}

/// A text for a message: every invisible character is escaped.
pub(crate) fn seen(text: &str) -> String {
    shown(text, usize::MAX)
}

/// The same, truncated.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let mut out = String::new();
    for c in text.chars().take(most) {
        if is_unseen(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    if text.chars().nth(most).is_some() {
        out.push_str("...");
    }
    out
}

/// A name for a message.
pub(crate) fn word(name: &str) -> String {
    shown(name, SHOWN_WORD)
}

/// A name as a JSON string, which reads back as the same name.
pub(crate) fn quoted(name: &str) -> String {
    let mut out = String::new();
    for c in serde_json::Value::from(name).to_string().chars() {
        if is_unseen(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out += &format!("\\u{unit:04x}"));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_near() {
        let nearest = |given: &str| nearest(given, ["a", "b", "bias", "boundary", "d"].into_iter());
        for (given, meant) in [("Bias", "bias"), ("bais", "bias"), ("bia", "bias"), ("bondary", "boundary"), ("boundaries", "")] {
            assert_eq!(nearest(given).unwrap_or_default(), meant, "{given}");
        }
        // A single letter does not resemble another, and a very long name resembles none.
        assert!(nearest("c").is_none() && nearest("gain").is_none() && nearest(&"b".repeat(1 << 20)).is_none());
    }

    #[test]
    fn what_a_document_meant_is_near() {
        for (message, end) in [
            ("unknown variant `ad`, expected one of `add`, `sub` at line 1 column 2", "; did you mean `add`?"),
            ("unknown field `nam`, expected `name` or `operand`", "; did you mean `name`?"),
            ("unknown variant `xyz`, expected one of `add`, `sub`", ""),
            ("missing field `name`", ""),
            ("unknown variant ", ""),
        ] {
            assert_eq!(meant_by_document(message), end, "{message}");
        }
    }

    #[test]
    fn what_is_not_seen_is_escaped_and_reads_back() {
        for (name, shape) in [
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{2028}b", "a\\u{2028}b"),
            ("\u{feff}\u{200b}\u{ad}", "\\u{feff}\\u{200b}\\u{ad}"),
            ("tag\u{e0061}", "tag\\u{e0061}"),
            ("line\nend\u{85}\u{7f}", "line\\nend\\u{85}\\u{7f}"),
            ("größe ∇ 行 שלום عدد", "größe ∇ 行 שלום عدد"),
        ] {
            assert_eq!(word(name), shape);
            assert_eq!(fault(name).is_some(), name != shape, "{name:?}");
            assert!(!quoted(name).chars().any(is_unseen), "{name:?}");
            assert_eq!(serde_json::from_str::<String>(&quoted(name)).unwrap(), name);
        }
        assert!(fault("a\u{202e}").unwrap().contains("U+202E"));
        assert_eq!(shown("abc", 2), "ab...");
    }

    #[test]
    fn the_ranges_are_in_order() {
        assert!(UNSEEN.iter().all(|(first, last)| first <= last));
        assert!(UNSEEN.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }
}
