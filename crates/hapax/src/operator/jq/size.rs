//! How large a jq program may be, found by its tokens: parser, compiler and engine recurse over it, and a stack that
//! overflows ends the process without a word.
//!
//! What nests adds up (brackets, `if`, `def`), and so does what is chained within one of them (`a | b | c`, `.a.b.c`,
//! `elif`). What stands side by side does not: entries of an object, arguments, definitions. Weights are such that a program of one
//! kind of token alone that is at the limit compiles on a main thread's stack of 8 MiB and runs on a worker's of 2 MiB,
//! unoptimised.

/// Bytes of a program: it is written by a person.
const BYTES: usize = 64 * 1024;

/// Sum of the weights of what is open at once: 200 brackets, 200 pipes, 400 commas.
const WEIGHT: usize = 400;

const BRACKET: usize = 2;
const STEP: usize = 2;
const JOINT: usize = 1;

/// Operators of one or two of these characters are one joint.
const OPERATORS: &str = "+*/%=<>!";

/// What closes a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bracket,
    /// An object, or the braces of a pattern.
    Braces,
    /// Inside a string: its closing bracket leads back into the string.
    Interpolation,
    If,
    Definition,
}

struct Level {
    kind: Kind,
    opened: usize,
    chained: usize,
}

/// Checks a program.
///
/// # Errors
/// It is too large; the text says in which way.
pub(super) fn check(text: &str) -> Result<(), String> {
    if text.len() > BYTES {
        return Err(format!("the program has {} bytes, and may have {BYTES}", text.len()));
    }
    let mut levels = vec![Level { kind: Kind::Bracket, opened: 0, chained: 0 }];
    let mut rest = text;
    while let Some(token) = rest.chars().next() {
        rest = &rest[after(token, rest, &mut levels)..];
        if levels.iter().map(|level| level.opened + level.chained).sum::<usize>() > WEIGHT {
            return Err(
                "the program is nested too deeply, or a chain of too many steps: about 200 brackets, 200 pipes or \
                 400 commas may be open at once"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

/// Takes the token at the beginning of `rest`; answers its length.
fn after(token: char, rest: &str, levels: &mut Vec<Level>) -> usize {
    match token {
        '"' => return 1 + string(&rest[1..], levels),
        '#' => return rest.find('\n').unwrap_or(rest.len()),
        '(' | '[' => open(levels, Kind::Bracket, BRACKET),
        '{' => open(levels, Kind::Braces, BRACKET),
        ')' | '}' => return 1 + closed(&rest[1..], levels),
        ']' => {
            let passed = closed(&rest[1..], levels);
            // It may have been an index, and indices are chained.
            top(levels).chained += JOINT;
            return 1 + passed;
        }
        ';' if top(levels).kind == Kind::Definition => drop(close(levels, &[Kind::Definition])),
        ';' => top(levels).chained = 0,
        ',' if top(levels).kind == Kind::Braces => top(levels).chained = 0,
        '|' | '-' => top(levels).chained += STEP,
        ',' => top(levels).chained += JOINT,
        c if OPERATORS.contains(c) => {
            top(levels).chained += JOINT;
            return rest.find(|c| !OPERATORS.contains(c)).unwrap_or(rest.len());
        }
        c if c.is_ascii_alphanumeric() || "_$@.".contains(c) => {
            let end = rest[1..]
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .map_or(rest.len(), |at| at + 1);
            if c == '.' {
                top(levels).chained += JOINT;
            }
            word(&rest[..end], levels);
            return end;
        }
        _ => {}
    }
    token.len_utf8()
}

/// Closes a bracket; behind that of an interpolation its string goes on. Answers the length of what is passed over.
fn closed(rest: &str, levels: &mut Vec<Level>) -> usize {
    match close(levels, &[Kind::Bracket, Kind::Braces, Kind::Interpolation]) {
        Some(Kind::Interpolation) => string(rest, levels),
        _ => 0,
    }
}

fn word(word: &str, levels: &mut Vec<Level>) {
    match word {
        "if" => open(levels, Kind::If, STEP),
        "then" | "else" => top(levels).chained = 0,
        "elif" => {
            top(levels).chained = 0;
            top(levels).opened += STEP;
        }
        "end" => drop(close(levels, &[Kind::If])),
        "def" => open(levels, Kind::Definition, STEP),
        "try" | "reduce" | "foreach" | "label" | "as" => top(levels).chained += STEP,
        "and" | "or" => top(levels).chained += JOINT,
        _ => {}
    }
}

/// Passes over a string behind its quote, up to its end or to an interpolation; answers the length.
fn string(rest: &str, levels: &mut Vec<Level>) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'"', _) => return at + 1,
            (b'\\', Some(b'(')) => {
                open(levels, Kind::Interpolation, BRACKET);
                return at + 2;
            }
            (b'\\', Some(next)) if next.is_ascii() => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn open(levels: &mut Vec<Level>, kind: Kind, opened: usize) {
    levels.push(Level { kind, opened, chained: 0 });
}

/// Closes the innermost level where it is of one of these kinds. Anything else is no program, and the parser says so.
fn close(levels: &mut Vec<Level>, kinds: &[Kind]) -> Option<Kind> {
    let kind = top(levels).kind;
    if levels.len() == 1 || !kinds.contains(&kind) {
        return None;
    }
    levels.pop().map(|level| level.kind)
}

fn top(levels: &mut [Level]) -> &mut Level {
    levels.last_mut().expect("the outermost level is never closed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        batch::{Headers, Origin, RecordRef},
        operator::JqProgram,
    };
    use hapax_commit::SplitId;

    fn record() -> RecordRef<'static> {
        let value = Some(b"{}".as_slice());
        RecordRef {
            key: None,
            value,
            headers: Headers::default(),
            timestamp: 0,
            offset: 0,
            topic: None,
            partition: None,
        }
    }

    /// Programs of one kind of token: how they repeat, and how often they may.
    fn kinds() -> Vec<(&'static str, &'static str, &'static str, usize)> {
        vec![
            ("(", "1", ")", 200),
            ("[", "1", "]", 200),
            ("{a:", "1", "}", 200),
            ("reduce 1 as $x (0;", "1", ")", 66),
            (".|", ".", "", 133),
            ("-", "1", "", 200),
            ("try ", "1", "", 200),
            ("if 1 then ", "1", " end", 200),
            ("elif 1 then 1 ", "", "", 199),
            ("def f: ", "1", "; 1", 200),
            (". as $x | ", "1", "", 80),
            (".a", "", "", 400),
            ("[0]", "", "", 398),
            ("1,", "1", "", 400),
            ("1+", "1", "", 400),
            ("1 and ", "1", "", 400),
            (".a=", "1", "", 200),
        ]
    }

    #[allow(clippy::disallowed_methods, reason = "the stack's size is what is tested")]
    fn compiled_on_a_main_thread_s_stack(text: String) -> JqProgram {
        let compile = move || JqProgram::compile("jq", &text).unwrap();
        std::thread::Builder::new().stack_size(8 << 20).spawn(compile).unwrap().join().unwrap()
    }

    #[test]
    fn what_is_at_the_limit_has_room_on_the_stack_and_more_is_refused() {
        let origin =
            Origin { split: SplitId("s/t/0".into()), topic: "t".into(), partition: 0, partitions: None };
        for (open, inner, close, most) in kinds() {
            let program = |count: usize| {
                let (begin, end) = match open {
                    "elif 1 then 1 " => ("if 1 then 1 ", "end"),
                    "[0]" => (".", ""),
                    _ => ("", ""),
                };
                format!("{begin}{}{inner}{}{end}", open.repeat(count), close.repeat(count))
            };
            let largest = compiled_on_a_main_thread_s_stack(program(most));
            // A test has a stack of 2 MiB, as a worker has. What comes of it does not matter.
            let _ = largest.values(&origin, record());
            for count in [most + 1, 3_000] {
                let why = check(&program(count)).unwrap_err();
                assert!(why.starts_with("the program is nested too deeply"), "{open}: {why}");
            }
        }
    }

    #[test]
    fn what_stands_side_by_side_does_not_add_up() {
        let entries: Vec<String> = (0..3_000).map(|number| format!("a{number}: (.b | .c)")).collect();
        assert_eq!(check(&format!("{{{}}}", entries.join(", "))), Ok(()));
        assert_eq!(check(&"def f: . | . | .; ".repeat(3_000)), Ok(()));
        assert_eq!(
            check(&format!("if . then . {} else . end", "elif . | . then . | . ".repeat(150))),
            Ok(())
        );
    }

    #[test]
    fn strings_and_comments_have_no_steps_and_interpolations_do() {
        assert_eq!(check(&format!("\"{}\" | .", "(|,-\\\"\\n".repeat(3_000))), Ok(()));
        assert_eq!(check(&format!("# {}\n.", "(|,".repeat(3_000))), Ok(()));
        let deep = format!("{}1{}", "\"\\(".repeat(300), ")\"".repeat(300));
        assert!(check(&deep).is_err());
        assert_eq!(check(&"\"x\\(.a)y\\(.b)\" ".repeat(1_000)), Ok(()));
    }

    #[test]
    fn length_is_bounded() {
        assert_eq!(
            check(&".".repeat(65_537)).unwrap_err(),
            "the program has 65537 bytes, and may have 65536"
        );
    }
}
