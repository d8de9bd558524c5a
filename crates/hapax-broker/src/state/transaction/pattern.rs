//! The pattern of ListTransactions: the part of RE2's language that people write for names, matched in full. What is
//! outside of it is refused as an invalid expression instead of being guessed at.
//!
//! Taken: literals, `.`, classes with ranges and negation, `\d \w \s` and their opposites, escaped punctuation, groups
//! without names, `|`, `* + ?` (also lazy, which cannot show in a full match), `{n}`, `{n,}`, `{n,m}`, and `^`, `$` at
//! the ends. Not taken: flags, named groups, classes by property, other assertions.

use crate::state::Code;

/// Longer expressions and larger counts are refused, as RE2 refuses a repetition above 1000.
const LONGEST: usize = 1_000;
const MOST_STEPS: usize = 20_000;

/// A compiled expression.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    program: Vec<Step>,
}

/// A step of the machine that walks over a name with all alternatives at once.
#[derive(Clone, Debug)]
enum Step {
    One(Class),
    Split(usize, usize),
    Jump(usize),
    Match,
}

/// A set of characters.
#[derive(Clone, Debug, Default)]
struct Class {
    ranges: Vec<(char, char)>,
    negated: bool,
}

impl Class {
    fn any() -> Self {
        Self { ranges: vec![('\n', '\n')], negated: true }
    }

    fn one(character: char) -> Self {
        Self { ranges: vec![(character, character)], negated: false }
    }

    fn has(&self, character: char) -> bool {
        self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&character)) != self.negated
    }
}

/// An expression that is not compiled yet.
#[derive(Clone, Debug)]
enum Node {
    Empty,
    One(Class),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat { node: Box<Node>, least: usize, most: Option<usize> },
}

impl Pattern {
    /// Compiles an expression.
    pub(super) fn new(expression: &str) -> Result<Self, Code> {
        if expression.len() > LONGEST {
            return Err(Code::INVALID_REGULAR_EXPRESSION);
        }
        let expression = expression.strip_prefix('^').unwrap_or(expression);
        let escaped_end = expression.ends_with("\\$");
        let expression =
            if escaped_end { expression } else { expression.strip_suffix('$').unwrap_or(expression) };
        let mut parser = Parser { rest: expression.chars().collect(), at: 0, depth: 0 };
        let node = parser.choice()?;
        if parser.at < parser.rest.len() {
            return Err(Code::INVALID_REGULAR_EXPRESSION);
        }
        let mut program = Vec::new();
        compile(&node, &mut program)?;
        program.push(Step::Match);
        Ok(Self { program })
    }

    /// Whether the whole name matches.
    pub(super) fn matches(&self, name: &str) -> bool {
        let mut current = vec![false; self.program.len()];
        self.follow(0, &mut current);
        for character in name.chars() {
            let mut next = vec![false; self.program.len()];
            for (at, _) in current.iter().enumerate().filter(|(_, reached)| **reached) {
                if let Step::One(class) = &self.program[at]
                    && class.has(character)
                {
                    self.follow(at + 1, &mut next);
                }
            }
            current = next;
        }
        current.last().copied().unwrap_or(false)
    }

    fn follow(&self, from: usize, reached: &mut [bool]) {
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut reached[at], true) {
                match self.program[at] {
                    Step::Split(one, other) => open.extend([one, other]),
                    Step::Jump(to) => open.push(to),
                    Step::One(_) | Step::Match => {}
                }
            }
        }
    }
}

fn compile(node: &Node, program: &mut Vec<Step>) -> Result<(), Code> {
    if program.len() > MOST_STEPS {
        return Err(Code::INVALID_REGULAR_EXPRESSION);
    }
    match node {
        Node::Empty => {}
        Node::One(class) => program.push(Step::One(class.clone())),
        Node::Sequence(nodes) => {
            for node in nodes {
                compile(node, program)?;
            }
        }
        Node::Choice(nodes) => compile_choice(nodes, program)?,
        Node::Repeat { node, least, most } => {
            for _ in 0..*least {
                compile(node, program)?;
            }
            match most {
                None => compile_loop(node, program)?,
                Some(most) => compile_optional(node, most - least, program)?,
            }
        }
    }
    Ok(())
}

fn compile_optional(node: &Node, times: usize, program: &mut Vec<Step>) -> Result<(), Code> {
    for _ in 0..times {
        let split = program.len();
        program.push(Step::Match);
        compile(node, program)?;
        program[split] = Step::Split(split + 1, program.len());
    }
    Ok(())
}

fn compile_loop(node: &Node, program: &mut Vec<Step>) -> Result<(), Code> {
    let split = program.len();
    program.push(Step::Match);
    compile(node, program)?;
    program.push(Step::Jump(split));
    program[split] = Step::Split(split + 1, program.len());
    Ok(())
}

fn compile_choice(nodes: &[Node], program: &mut Vec<Step>) -> Result<(), Code> {
    let mut ends = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let split = program.len();
        let is_last = index + 1 == nodes.len();
        if !is_last {
            program.push(Step::Match);
        }
        compile(node, program)?;
        if !is_last {
            ends.push(program.len());
            program.push(Step::Match);
            program[split] = Step::Split(split + 1, program.len());
        }
    }
    let end = program.len();
    ends.into_iter().for_each(|at| program[at] = Step::Jump(end));
    Ok(())
}

struct Parser {
    rest: Vec<char>,
    at: usize,
    depth: usize,
}

/// Deeper nesting is refused: no name needs it.
const DEEPEST: usize = 50;

impl Parser {
    fn peek(&self) -> Option<char> {
        self.rest.get(self.at).copied()
    }

    fn next(&mut self) -> Result<char, Code> {
        let next = self.peek().ok_or(Code::INVALID_REGULAR_EXPRESSION)?;
        self.at += 1;
        Ok(next)
    }

    fn eat(&mut self, wanted: char) -> bool {
        let eaten = self.peek() == Some(wanted);
        self.at += usize::from(eaten);
        eaten
    }

    fn choice(&mut self) -> Result<Node, Code> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Code::INVALID_REGULAR_EXPRESSION);
        }
        let mut nodes = vec![self.sequence()?];
        while self.eat('|') {
            nodes.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Choice(nodes) })
    }

    fn sequence(&mut self) -> Result<Node, Code> {
        let mut nodes = Vec::new();
        while let Some(next) = self.peek() {
            if next == '|' || next == ')' {
                break;
            }
            nodes.push(self.repeated()?);
        }
        // No node but the empty one compiles to nothing, so that repetitions of nothing cannot cost time.
        nodes.retain(|node| !matches!(node, Node::Empty));
        Ok(if nodes.is_empty() { Node::Empty } else { Node::Sequence(nodes) })
    }

    fn repeated(&mut self) -> Result<Node, Code> {
        let node = self.single()?;
        let (least, most) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => self.counts()?,
            _ => return Ok(node),
        };
        // Whichever of the four it was, it is the last character of the count.
        self.at += 1;
        self.eat('?');
        if matches!(self.peek(), Some('*' | '+' | '?' | '{')) {
            return Err(Code::INVALID_REGULAR_EXPRESSION);
        }
        if most == Some(0) || matches!(node, Node::Empty) {
            return Ok(Node::Empty);
        }
        Ok(Node::Repeat { node: Box::new(node), least, most })
    }

    /// Reads `{n`, `{n,` or `{n,m` and stops at the brace.
    fn counts(&mut self) -> Result<(usize, Option<usize>), Code> {
        self.next()?;
        let least = self.number()?.ok_or(Code::INVALID_REGULAR_EXPRESSION)?;
        let most = if self.eat(',') { self.number()? } else { Some(least) };
        if self.peek() != Some('}') || most.is_some_and(|most| most < least) {
            return Err(Code::INVALID_REGULAR_EXPRESSION);
        }
        Ok((least, most))
    }

    fn number(&mut self) -> Result<Option<usize>, Code> {
        let mut number = None;
        while let Some(digit) = self.peek().and_then(|next| next.to_digit(10)) {
            self.at += 1;
            let value = number.unwrap_or(0) * 10 + digit as usize;
            if value > LONGEST {
                return Err(Code::INVALID_REGULAR_EXPRESSION);
            }
            number = Some(value);
        }
        Ok(number)
    }

    fn single(&mut self) -> Result<Node, Code> {
        match self.next()? {
            '.' => Ok(Node::One(Class::any())),
            '[' => self.class().map(Node::One),
            '\\' => self.escaped().map(Node::One),
            '(' => {
                if self.eat('?') && !self.eat(':') {
                    return Err(Code::INVALID_REGULAR_EXPRESSION);
                }
                let inner = self.choice()?;
                if self.eat(')') { Ok(inner) } else { Err(Code::INVALID_REGULAR_EXPRESSION) }
            }
            '*' | '+' | '?' | '^' | '$' => Err(Code::INVALID_REGULAR_EXPRESSION),
            literal => Ok(Node::One(Class::one(literal))),
        }
    }

    fn escaped(&mut self) -> Result<Class, Code> {
        let (ranges, negated): (&[(char, char)], bool) = match self.next()? {
            'd' => (&[('0', '9')], false),
            'D' => (&[('0', '9')], true),
            'w' => (&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')], false),
            'W' => (&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')], true),
            's' => (&[('\t', '\n'), ('\u{c}', '\r'), (' ', ' ')], false),
            'S' => (&[('\t', '\n'), ('\u{c}', '\r'), (' ', ' ')], true),
            't' => (&[('\t', '\t')], false),
            'n' => (&[('\n', '\n')], false),
            other if other.is_ascii_punctuation() => return Ok(Class::one(other)),
            _ => return Err(Code::INVALID_REGULAR_EXPRESSION),
        };
        Ok(Class { ranges: ranges.to_vec(), negated })
    }

    fn class(&mut self) -> Result<Class, Code> {
        let mut class = Class { ranges: Vec::new(), negated: self.eat('^') };
        loop {
            let from = match self.next()? {
                ']' if !class.ranges.is_empty() => return Ok(class),
                '[' if self.peek() == Some(':') => return Err(Code::INVALID_REGULAR_EXPRESSION),
                '\\' => {
                    let escaped = self.escaped()?;
                    match escaped.ranges.as_slice() {
                        [(from, to)] if from == to && !escaped.negated => *from,
                        _ if escaped.negated => return Err(Code::INVALID_REGULAR_EXPRESSION),
                        _ => {
                            class.ranges.extend(escaped.ranges);
                            continue;
                        }
                    }
                }
                literal => literal,
            };
            let is_range =
                self.peek() == Some('-') && self.rest.get(self.at + 1).is_some_and(|next| *next != ']');
            let to = if is_range {
                self.at += 1;
                match self.next()? {
                    '\\' => self.next()?,
                    to => to,
                }
            } else {
                from
            };
            if to < from {
                return Err(Code::INVALID_REGULAR_EXPRESSION);
            }
            class.ranges.push((from, to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(expression: &str, name: &str) -> bool {
        Pattern::new(expression).unwrap().matches(name)
    }

    #[test]
    fn a_pattern_matches_the_whole_name() {
        assert!(matches("hapax-.*", "hapax-1-2"));
        assert!(!matches("hapax-", "hapax-1"));
        assert!(!matches("1", "hapax-1"));
        assert!(matches("^a$", "a"));
        assert!(matches("", ""));
        assert!(matches(".*", ""));
    }

    #[test]
    fn the_language_that_people_write_is_understood() {
        assert!(matches(r"(foo|ba[rz])\.\d{2,3}", "baz.123"));
        assert!(!matches(r"(foo|ba[rz])\.\d{2,3}", "baz.1234"));
        assert!(!matches(r"(foo|ba[rz])\.\d{2}", "bat.12"));
        assert!(matches(r"[^a-c]+x?", "dddx"));
        assert!(matches("(ab)*c", "ababc"));
        assert!(matches("(?:a|b|)c{0}d", "d"));
        assert!(matches("a+?b??", "aa"));
        assert!(matches(r"[\w-]+", "a_b-c"));
        assert!(matches("(a*)*", "aaaa"), "a loop around nothing ends");
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for expression in [
            "(",
            ")",
            "[a",
            "*a",
            "a**",
            "a{2,1}",
            "a{1001}",
            r"\p{L}",
            r"\",
            "(?i)a",
            "(?<n>a)",
            "[b-a]",
            "a{",
            "[[:alpha:]]",
        ] {
            assert!(Pattern::new(expression).is_err(), "{expression}");
        }
        assert!(Pattern::new(&"(".repeat(600)).is_err());
        assert!(Pattern::new("((a{1000}){1000}){1000}").is_err(), "its size is bounded");
        assert!(matches("(((){1000}){1000}){1000}", ""), "and nothing costs nothing");
    }
}
