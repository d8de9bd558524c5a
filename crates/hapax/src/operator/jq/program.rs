//! Compiling jq programs, and running them on a record.

use super::{header, json, size};
use crate::batch::{Origin, RecordRef};
use jaq_core::{
    Compiler, Ctx, Filter, Vars,
    compile::Undefined,
    data::JustLut,
    load::{self, Arena, File, Loader},
};
use jaq_json::Val;
use std::ops::BitOr;

type Data = JustLut<Val>;

/// What programs may ask of the input record, in the order in which values are bound.
const VARIABLES: [&str; 6] = ["$key", "$topic", "$partition", "$offset", "$timestamp", "$headers"];

/// What a program may not use, and what it would reach for.
const REFUSED: [(&str, &str); 17] = [
    ("now", "it reads the clock"),
    ("localtime", "it depends on the machine's time zone; gmtime does not"),
    ("strflocaltime", "it depends on the machine's time zone; strftime does not"),
    ("env", "it reads the environment; use ${NAME} in the pipeline file"),
    ("$ENV", "it reads the environment; use ${NAME} in the pipeline file"),
    ("input", "each record is an input of its own"),
    ("inputs", "each record is an input of its own"),
    ("input_filename", "each record is an input of its own; use $topic"),
    ("input_line_number", "each record is an input of its own; use $offset"),
    ("debug", "it writes to the outside"),
    ("stderr", "it writes to the outside"),
    ("debug_empty", "it writes to the outside"),
    ("stderr_empty", "it writes to the outside"),
    ("halt", "it would end the process; use error to refuse a record"),
    ("halt_error", "it would end the process; use error to refuse a record"),
    ("get_search_list", "there are no modules"),
    ("input_name", "each record is an input of its own; use $topic"),
];

fn is_refused(name: &str) -> bool {
    REFUSED.iter().any(|(refused, _)| *refused == name)
}

/// Which of the variables a program may read: a superset, found by their names in its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Uses(u8);

impl Uses {
    fn of(text: &str) -> Self {
        let bit = |(at, name): (usize, &&str)| u8::from(text.contains(*name)) << at;
        Self(VARIABLES.iter().enumerate().map(bit).fold(0, BitOr::bitor))
    }

    fn has(self, at: usize) -> bool {
        self.0 & (1 << at) != 0
    }
}

impl BitOr for Uses {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The values of the variables for one record.
pub(super) struct Variables(Vars<Val>);

impl Variables {
    /// The variables that are used; the others are null.
    pub(super) fn of(origin: &Origin, record: RecordRef<'_>, uses: Uses) -> Self {
        let value = |at: usize| match VARIABLES[at] {
            _ if !uses.has(at) => Val::Null,
            "$key" => record.key.map_or(Val::Null, header::text),
            "$topic" => Val::from(origin.topic.to_string()),
            "$partition" => whole(i64::from(origin.partition)),
            "$offset" => whole(record.offset),
            "$timestamp" => whole(record.timestamp),
            _ => header::decode(record.headers),
        };
        Self(Vars::new((0..VARIABLES.len()).map(value)))
    }
}

fn whole(number: i64) -> Val {
    Val::Num(jaq_json::Num::from_integral(number))
}

/// A compiled program.
pub(super) struct Program {
    filter: Filter<Data>,
    uses: Uses,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("uses", &self.uses).finish_non_exhaustive()
    }
}

impl Program {
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        size::check(text)?;
        let definitions = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let functions = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs::<Data>());
        let arena = Arena::default();
        let modules = Loader::new(definitions.filter(|definition| !is_refused(definition.name)))
            .load(&arena, File { code: text, path: () })
            .map_err(|errors| load_reason(&errors))?;
        let filter = Compiler::default()
            .with_funs(functions.filter(|(name, ..)| !is_refused(name)))
            .with_global_vars(VARIABLES)
            .compile(modules)
            .map_err(|errors| compile_reason(&errors))?;
        Ok(Self { filter, uses: Uses::of(text) })
    }

    /// Which variables the program may read.
    pub(super) fn uses(&self) -> Uses {
        self.uses
    }

    /// The outputs on a value, in order; the first error ends them.
    pub(super) fn run(&self, variables: &Variables, input: Val) -> impl Iterator<Item = Result<Val, String>> {
        let context = Ctx::<Data>::new(&self.filter.lut, variables.0.clone());
        self.filter.id.run((context, input)).map(|output| {
            output.map_err(|exception| match exception.get_err() {
                Ok(error) => format!("the program fails: {}", json::message(error.into_val())),
                Err(_) => "the program leaves its own control flow".to_owned(),
            })
        })
    }

    /// The only output on a value.
    pub(super) fn one(&self, variables: &Variables, input: Val) -> Result<Val, String> {
        let mut outputs = self.run(variables, input);
        let first = outputs
            .next()
            .unwrap_or_else(|| Err("the program must yield one value, and yields none".into()))?;
        match outputs.next() {
            None => Ok(first),
            Some(Ok(_)) => Err("the program must yield one value, and yields several".to_owned()),
            Some(Err(why)) => Err(why),
        }
    }
}

fn load_reason(errors: &load::Errors<&str, ()>) -> String {
    let expected = |what: &str, found: &str| match found {
        "" => format!("expected {what} before the end"),
        _ => format!("expected {what} at {:?}", json::shortened(found)),
    };
    let reason = |error: &load::Error<&str>| match error {
        load::Error::Io(modules) => modules.first().map(|(path, _)| {
            format!(
                "cannot load the module {path:?}: programs stand alone; put its definitions into the program"
            )
        }),
        load::Error::Lex(all) => all.first().map(|(what, found)| expected(what.as_str(), found)),
        load::Error::Parse(all) => all.first().map(|(what, found)| expected(what.as_str(), found)),
    };
    errors.iter().find_map(|(_, error)| reason(error)).unwrap_or_else(|| "not a jq program".to_owned())
}

fn compile_reason(errors: &jaq_core::compile::Errors<&str, ()>) -> String {
    let Some((name, undefined)) = errors.iter().find_map(|(_, all)| all.first()) else {
        return "not a jq program".to_owned();
    };
    if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| refused == name) {
        return format!(
            "{name} is not available: {reason}; a program must give the same records when it runs again"
        );
    }
    match undefined {
        Undefined::Filter(arity) => format!("there is no filter {name}/{arity}"),
        Undefined::Var => format!("there is no variable {name}; there are {}", VARIABLES.join(", ")),
        other => format!("there is no {} {name}", other.as_str()),
    }
}
