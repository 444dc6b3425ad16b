//! Reads the sources and holds them to the layout that `src/lib.rs` announces.
//!
//! The `mod` list there is the order in which a call meets the modules. A module names only modules
//! listed below it, the policies never name one another, and files and functions keep a size that
//! can be held in the head.

use std::fs;
use std::path::{Path, PathBuf};

/// Policies stand side by side: what two of them share lives further down.
const POLICIES: [&str; 8] = ["retry", "hedge", "timeout", "breaker", "limit", "fallback", "chaos", "judge"];

/// How the items begin that exist in test builds only; `any(test, …)` is production code as well.
const TEST_ONLY: &[&str] = &["#[cfg(test)]", "#[cfg(all(test"];

/// Lines of a file before its tests.
const LONGEST_FILE: usize = 400;

/// Lines of a function, from `fn` to the closing brace.
const LONGEST_FUNCTION: usize = 60;

#[test]
fn modules_name_only_modules_below_them() {
    let (listed, sources) = crate_sources();
    let mut checked = 0;
    let mut violations = Vec::new();
    for source in sources.iter().filter(|source| !source.path.is_empty()) {
        for reference in references(&production(&lex(&source.text)), &source.path) {
            checked += 1;
            if let Some(rule) = broken_rule(&listed, &source.path[0], &reference.module) {
                violations.push(format!("{}:{}: {rule}", source.file.display(), reference.line));
            }
        }
    }

    assert!(checked > 0, "no `crate::…` path anywhere: the check sees nothing");
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn files_and_functions_stay_short() {
    let mut violations = Vec::new();
    for source in crate_sources().1 {
        let file = source.file.display();
        let lines = source.text.lines().take_while(|line| !opens_tests(line)).count();
        if lines > LONGEST_FILE {
            violations.push(format!("{file}:1: {lines} lines, at most {LONGEST_FILE}"));
        }
        for (name, line, length) in functions(&production(&lex(&source.text))) {
            if length > LONGEST_FUNCTION {
                violations.push(format!("{file}:{line}: `{name}` has {length} lines, at most {LONGEST_FUNCTION}"));
            }
        }
    }

    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

fn opens_tests(code: &str) -> bool {
    TEST_ONLY.iter().any(|attribute| code.starts_with(attribute))
}

/// Why a file of top-level module `from` must not write `crate::<to>`, if it must not.
fn broken_rule(listed: &[String], from: &str, to: &str) -> Option<String> {
    let place = |name: &str| listed.iter().position(|module| module == name);
    let Some(target) = place(to) else {
        return Some(format!("`crate::{to}` is an item of the root: name the module that defines it"));
    };
    if from == to {
        None
    } else if POLICIES.contains(&from) && POLICIES.contains(&to) {
        Some(format!("policy `{from}` names policy `{to}`: what both need belongs below them"))
    } else if Some(target) < place(from) {
        Some(format!("`{from}` names `{to}`, which `src/lib.rs` lists above it"))
    } else {
        None
    }
}

/// A file of the crate, without the files that only exist under `cfg(test)`.
struct Source {
    file: PathBuf,
    /// Names from the crate root down to the module that is this file; empty for `lib.rs`.
    path: Vec<String>,
    text: String,
}

/// The modules in the order of `src/lib.rs`, and every file reached from there.
fn crate_sources() -> (Vec<String>, Vec<Source>) {
    // Cargo runs tests in the folder of the manifest.
    let root = Path::new("src");
    let mut listed = Vec::new();
    let mut sources = Vec::new();
    let mut pending = vec![Vec::new()];
    while let Some(path) = pending.pop() {
        let file = module_file(root, &path);
        let text = fs::read_to_string(&file).expect("a `mod` line names a file beside it");
        let children = modules(&production(&lex(&text)));
        for child in children.iter().filter(|child| !child.inline) {
            pending.push(path.iter().chain([&child.name]).cloned().collect());
        }
        if path.is_empty() {
            listed = children.into_iter().map(|child| child.name).collect();
        }
        sources.push(Source { file, path, text });
    }

    assert!(!listed.is_empty(), "src/lib.rs lists no module: the check sees nothing");
    sources.sort_by(|a, b| a.file.cmp(&b.file));
    (listed, sources)
}

fn module_file(root: &Path, path: &[String]) -> PathBuf {
    if path.is_empty() {
        return root.join("lib.rs");
    }
    let folder = path.iter().fold(root.to_path_buf(), |folder, name| folder.join(name));
    let flat = folder.with_extension("rs");
    if flat.exists() { flat } else { folder.join("mod.rs") }
}

struct Module {
    name: String,
    inline: bool,
}

/// The modules that a file declares at its top level, in order.
fn modules(tokens: &[Token<'_>]) -> Vec<Module> {
    let mut found = Vec::new();
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        let declared = (text(tokens, at + 1), text(tokens, at + 2));
        if let ("mod", 0, (Some(name), Some(end @ (";" | "{")))) = (token.text, depth, declared) {
            found.push(Module { name: name.to_owned(), inline: end == "{" });
        }
        depth = depth_after(depth, token.text);
    }
    found
}

/// A top-level name that a path reaches through the crate root.
struct Reference {
    module: String,
    line: usize,
}

/// Every name right below the crate root that module `path` writes, through `crate` or `super`.
fn references(tokens: &[Token<'_>], path: &[String]) -> Vec<Reference> {
    let mut found = Vec::new();
    let mut path = path.to_vec();
    let mut inline: Vec<usize> = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if token.text == "mod" && text(tokens, at + 2) == Some("{") {
            path.extend(text(tokens, at + 1).map(str::to_owned));
            inline.push(depth);
        }
        depth = depth_after(depth, token.text);
        if token.text == "}" && inline.last() == Some(&depth) {
            inline.pop();
            path.pop();
        }
        let starts_path = matches!(token.text, "crate" | "self" | "super") && text(tokens, at + 1) == Some("::");
        at = if starts_path { follow(tokens, at, &path, &mut found) } else { at + 1 };
    }
    found
}

/// Follows one path, or one branch of a `use` tree, from module `here`; returns where to read on.
fn follow(tokens: &[Token<'_>], mut at: usize, here: &[String], found: &mut Vec<Reference>) -> usize {
    let mut from = here.to_vec();
    loop {
        let Some(token) = tokens.get(at) else {
            return at;
        };
        match token.text {
            "crate" => from.clear(),
            "self" => {}
            "super" => drop(from.pop()),
            "{" => return follow_group(tokens, at, &from, found),
            name if from.is_empty() => {
                found.push(Reference { module: name.to_owned(), line: token.line });
                return at + 1;
            }
            _ => return at + 1,
        }
        if text(tokens, at + 1) != Some("::") {
            return at + 1;
        }
        at += 2;
    }
}

/// Follows each branch of `{a, b::c, self, super::d}`, relative to what stands before the brace.
fn follow_group(tokens: &[Token<'_>], open: usize, from: &[String], found: &mut Vec<Reference>) -> usize {
    let end = closing(tokens, open);
    let mut at = open + 1;
    while at < end {
        at = follow(tokens, at, from, found);
        while at < end && tokens[at].text != "," {
            // Over a nested group in one step: its commas are not ours.
            at = closing(tokens, at) + 1;
        }
        at += 1;
    }
    end
}

/// Name, line and length of every function with a body.
fn functions<'a>(tokens: &[Token<'a>]) -> Vec<(&'a str, usize, usize)> {
    let mut found = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        let [keyword, name] = pair else { continue };
        if keyword.text != "fn" || name.text == "(" {
            continue;
        }
        let end = end_of_item(tokens, at);
        if let Some(last) = tokens.get(end).filter(|last| last.text == "}") {
            found.push((name.text, keyword.line, last.line - keyword.line + 1));
        }
    }
    found
}

/// The tokens without the items that exist in test builds only.
fn production<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let attribute: String = tokens[at..].iter().take(7).map(|token| token.text).collect();
        if opens_tests(&attribute) {
            at = end_of_item(tokens, closing(tokens, at + 1) + 1) + 1;
        } else {
            kept.push(*token);
            at += 1;
        }
    }
    kept
}

/// The `;` or the closing brace that ends the item starting at `start`.
fn end_of_item(tokens: &[Token<'_>], start: usize) -> usize {
    let mut at = start;
    while let Some(token) = tokens.get(at) {
        match token.text {
            ";" => return at,
            // `use a::{b};` goes on to its semicolon.
            "{" if at > 0 && tokens[at - 1].text != "::" => return closing(tokens, at),
            "(" | "[" | "{" => at = closing(tokens, at) + 1,
            _ => at += 1,
        }
    }
    at
}

/// The bracket that closes the one at `open`, or the end of the file.
fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        depth = depth_after(depth, token.text);
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

fn depth_after(depth: usize, text: &str) -> usize {
    match text {
        "(" | "[" | "{" => depth + 1,
        ")" | "]" | "}" => depth.saturating_sub(1),
        _ => depth,
    }
}

fn text<'a>(tokens: &[Token<'a>], at: usize) -> Option<&'a str> {
    tokens.get(at).map(|token| token.text)
}

/// A word, a `::` or one character of Rust code.
#[derive(Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// Splits code into tokens, leaving out comments, strings and character literals.
fn lex(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while !rest.is_empty() {
        let (length, is_code) = next_piece(rest);
        let (piece, after) = rest.split_at(length);
        if is_code {
            tokens.push(Token { text: piece, line });
        }
        line += piece.matches('\n').count();
        rest = after;
    }
    tokens
}

/// Length of the first piece of `rest`, and whether it is a token.
fn next_piece(rest: &str) -> (usize, bool) {
    let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let first = rest.chars().next().map_or(0, char::len_utf8);
    match rest.as_bytes() {
        [b'/', b'/', ..] => (rest.find('\n').unwrap_or(rest.len()), false),
        [b'/', b'*', ..] => (block_comment(rest), false),
        [b'"', ..] => (quoted(rest, '"'), false),
        [b'\'', b'\\', ..] => (quoted(rest, '\''), false),
        [b'\'', ..] if rest.chars().nth(2) == Some('\'') => (quoted(rest, '\''), false),
        // A lifetime: drop the tick and its name.
        [b'\'', ..] => (1 + next_piece(&rest[1..]).0, false),
        [b':', b':', ..] => (2, true),
        _ if matches!(&rest[..word], "r" | "br" | "cr") && raw_string(&rest[word..]) > 0 => {
            (word + raw_string(&rest[word..]), false)
        }
        _ if word > 0 => (word, true),
        _ => (first, !rest.starts_with(char::is_whitespace)),
    }
}

/// Length of a comment that may contain other comments.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Length of a literal in which a backslash takes away the meaning of the next character.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    rest.len()
}

/// Length of `#"…"#` with any number of hashes; zero if `rest` is not the body of a raw string.
fn raw_string(rest: &str) -> usize {
    let hashes = rest.bytes().take_while(|byte| *byte == b'#').count();
    if !rest[hashes..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    rest[hashes + 1..].find(&end).map_or(rest.len(), |at| hashes + 1 + at + end.len())
}

/// The reader above is a parser like any other, so it is tested on what could fool it.
mod reader {
    use super::*;

    fn path(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// The top-level names that `code` writes in module `at`, each with its line.
    fn named(at: &[&str], code: &str) -> Vec<(String, usize)> {
        let found = references(&production(&lex(code)), &path(at));
        found.into_iter().map(|reference| (reference.module, reference.line)).collect()
    }

    fn names(at: &[&str], code: &str) -> Vec<String> {
        named(at, code).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn nested_groups_yield_each_branch_with_its_line() {
        let code = "use crate::{\n  clock,\n  error::{Error, Kind},\n  limit as l, run::*,\n};";
        let found = named(&["retry"], code);
        let expected = [("clock", 2), ("error", 3), ("limit", 4), ("run", 4)];
        assert_eq!(found, expected.map(|(name, line)| (name.to_owned(), line)));
    }

    #[test]
    fn paths_in_code_and_in_visibilities_count() {
        let code = "pub(crate) struct A(crate::run::Run); pub(in crate::retry) fn f() -> Vec<crate::error::Kind> {}";
        assert_eq!(names(&["retry"], code), ["run", "retry", "error"]);
    }

    #[test]
    fn super_counts_only_where_it_reaches_the_root() {
        assert_eq!(names(&["retry"], "use super::run::Run;"), ["run"]);
        assert_eq!(names(&["retry", "backoff"], "use super::Config;"), [""; 0]);
        assert_eq!(names(&["retry", "backoff"], "use super::super::{rng::Rng, error};"), ["rng", "error"]);
        assert_eq!(names(&["retry", "backoff"], "use super::{Config, super::rng};"), ["rng"]);
        assert_eq!(names(&["retry", "backoff"], "use self::super::super::rng;"), ["rng"]);
    }

    #[test]
    fn an_inline_module_is_one_level_deeper_until_its_brace_closes() {
        let code = "mod inner { use super::A; use super::super::run; } use super::error;";
        assert_eq!(names(&["retry"], code), ["run", "error"]);
    }

    #[test]
    fn comments_strings_and_tests_do_not_count() {
        let code = r##"
            //! `crate::a`
            /* crate::b /* crate::c */ crate::d */
            const S: &str = "crate::e \" crate::f"; const R: &str = r#"crate::g " crate::h"#;
            const C: [char; 3] = ['"', '\'', '{'];
            fn life<'a>(s: &'a str) -> &'a str { crate::run::id(s) }
            #[cfg(test)] use crate::{i, j};
            #[cfg(all(test, steadfast_loom))] mod models;
            #[cfg(any(test, feature = "x"))] use crate::clock;
            #[cfg(test)] mod tests { use crate::k; fn f() { let _ = [1; 2]; } }
            use crate::error;
        "##;
        assert_eq!(names(&["retry"], code), ["run", "clock", "error"]);
    }

    #[test]
    fn the_module_list_keeps_its_order_and_leaves_tests_out() {
        let code = "#[cfg(feature = \"x\")] pub mod b; mod a; mod c { mod d; } #[cfg(test)] mod t; pub use b::B;";
        let found: Vec<_> = modules(&production(&lex(code))).into_iter().map(|m| (m.name, m.inline)).collect();
        assert_eq!(found, [("b".to_owned(), false), ("a".to_owned(), false), ("c".to_owned(), true)]);
    }

    #[test]
    fn a_function_ends_at_its_own_brace() {
        let code = "fn a(f: fn(u8) -> u8) -> [u8; 2]\nwhere u8: Copy,\n{\n  let f = || { 1 };\n}\nfn b();\nfn c() {}";
        assert_eq!(functions(&lex(code)), [("a", 1, 5), ("c", 7, 1)]);
    }

    #[test]
    fn each_rule_can_be_broken() {
        let listed = path(&["executor", "retry", "breaker", "run", "clock"]);
        let rule = |from, to| broken_rule(&listed, from, to).unwrap_or_default();
        assert_eq!(rule("executor", "clock"), "");
        assert_eq!(rule("retry", "run"), "");
        assert_eq!(rule("run", "run"), "");
        assert!(rule("clock", "run").contains("above"));
        assert!(rule("retry", "breaker").contains("policy"));
        assert!(rule("breaker", "retry").contains("policy"));
        assert!(rule("run", "Retry").contains("root"));
        assert!(rule("run", "*").contains("root"));
    }
}
