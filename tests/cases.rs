//! Holds the tests to two lists: public bug reports (`cases.md`), and what the suites of other libraries assert
//! (`behaviours.md`).
//!
//! A list that nobody checks becomes a wish. Here each case has a test or a reason why not, and each test that a list
//! names exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_case_has_a_test_or_a_reason_why_not() {
    let (tests, excused) = (tests(), excuses(WHOLE));
    let without = cases().into_iter().filter(|case| !is_tested(&tests, case) && !excused.contains(case));
    assert_eq!(without.collect::<Vec<_>>(), Vec::<String>::new(), "no test is named after them, or names them");
}

#[test]
fn only_cases_without_a_test_are_excused_as_a_whole_and_only_others_in_part() {
    let (tests, cases) = (tests(), cases());
    let (whole, in_part) = (excuses(WHOLE), excuses(IN_PART));
    assert!(!in_part.is_empty(), "the check sees nothing");
    for excused in whole.iter().chain(&in_part) {
        assert!(cases.contains(excused), "{excused} is no case");
        assert_eq!(is_tested(&tests, excused), in_part.contains(excused), "{excused}");
    }
}

#[test]
fn every_behaviour_is_shown_or_says_why_it_is_not() {
    let behaviours = read("tests/behaviours.md");
    let mut parts = behaviours.split("\n## ").skip(1);
    for lines in [160, 124] {
        let part = parts.next().expect("two parts");
        let items = numbered_items(part);
        assert_eq!(items.iter().map(|(number, _)| *number).collect::<Vec<_>>(), Vec::from_iter(1..=lines));
        for (number, text) in items {
            let is_absent = text.contains("**No counterpart:**");
            assert!(is_absent || named_tests(&text).next().is_some(), "{number}. {text}");
        }
    }
    assert!(parts.next().is_none());
}

#[test]
fn the_tests_that_show_behaviours_exist() {
    let (tests, behaviours) = (tests(), read("tests/behaviours.md"));
    let missing: BTreeSet<_> =
        named_tests(&behaviours).filter(|path| !tests.iter().any(|test| test.is_at(path))).collect();
    assert_eq!(missing, BTreeSet::new());
}

/// A function with a test attribute.
struct Test {
    /// Its file without the extension, in parts: `["tests", "it", "retry"]`.
    file: Vec<String>,
    name: String,
    /// Its doc comment.
    doc: String,
}

impl Test {
    /// Whether `path` leads to it: its name after the last parts of its file, as in `retry::backoff::a_zero_base_never_waits`.
    fn is_at(&self, path: &str) -> bool {
        let mut parts = path.split("::").collect::<Vec<_>>();
        let name = parts.pop();
        name == Some(self.name.as_str()) && self.file.iter().map(String::as_str).collect::<Vec<_>>().ends_with(&parts)
    }
}

/// Whether a test is named after the case, or names it in its doc comment.
fn is_tested(tests: &[Test], case: &str) -> bool {
    let (name, in_doc) = (case.replace('-', "_"), format!("`{case}`"));
    let is_named =
        |test: &Test| test.name.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    tests.iter().any(|test| is_named(test) || test.doc.contains(&in_doc))
}

/// All tests of this repository, those of the packages in `tests` included.
fn tests() -> Vec<Test> {
    let mut found = Vec::new();
    for file in ["tests", "src"].iter().flat_map(|folder| rust_files(Path::new(folder))) {
        let text = fs::read_to_string(&file).expect("sources are text");
        let parts: Vec<_> = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        // `a/mod.rs` is the module `a`.
        let parts = if parts.last().is_some_and(|last| last == "mod") { &parts[..parts.len() - 1] } else { &parts[..] };
        found.extend(tests_of(&text).into_iter().map(|(name, doc)| Test { file: parts.to_vec(), name, doc }));
    }
    found
}

/// The tests in a source: their names and doc comments. It is line by line, which is enough for formatted sources.
fn tests_of(text: &str) -> Vec<(String, String)> {
    let (mut found, mut doc, mut is_test) = (Vec::new(), String::new(), false);
    for line in text.lines().map(str::trim_start) {
        if let Some(sentence) = line.strip_prefix("///") {
            doc.push_str(sentence);
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            let signature = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            if let (true, Some(signature)) = (is_test, signature) {
                let name = signature.split('(').next().unwrap_or_default();
                found.push((name.to_owned(), doc.clone()));
            }
            doc.clear();
            is_test = false;
        }
    }
    found
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of this repository");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                rust_files(&path)
            } else {
                Vec::from_iter(path.extension().is_some_and(|extension| extension == "rs").then_some(path))
            }
        })
        .collect()
}

/// The first column of the tables.
fn cases() -> Vec<String> {
    let cases: Vec<_> = read("tests/cases.md").lines().filter_map(|line| first_code(line, "| `")).collect();
    assert_eq!(BTreeSet::from_iter(&cases).len(), cases.len(), "a case is listed twice");
    assert!(cases.len() > 100, "the check sees nothing");
    cases
}

/// The cases that the list items under a heading of the excuses begin with.
fn excuses(heading: &str) -> Vec<String> {
    let text = read("tests/NOT_APPLICABLE.md");
    let (_, section) = text.split_once(heading).expect("the heading is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    section.lines().filter_map(|line| first_code(line, "* `")).collect()
}

fn first_code(line: &str, before: &str) -> Option<String> {
    line.strip_prefix(before)?.split('`').next().map(str::to_owned)
}

/// The items of numbered lists, with the lines that go on with them.
fn numbered_items(markdown: &str) -> Vec<(u32, String)> {
    let mut items: Vec<(u32, String)> = Vec::new();
    for line in markdown.lines() {
        let begins = line.split_once(". ").and_then(|(number, text)| Some((number.parse().ok()?, text.to_owned())));
        match (begins, items.last_mut()) {
            (Some(item), _) => items.push(item),
            (None, Some((_, text))) if line.starts_with("  ") => text.extend([" ", line.trim_start()]),
            _ => {}
        }
    }
    items
}

/// What is in backticks and looks like the path of a test. Types have capitals in their paths.
fn named_tests(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_path = |code: &&str| {
        code.contains("::") && code.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c))
    };
    code.filter(is_path)
}

/// Cargo runs tests in the folder of the manifest.
fn read(path: &str) -> String {
    fs::read_to_string(path).expect("it is a text file of this repository")
}

const WHOLE: &str = "\n## As a whole\n";
const IN_PART: &str = "\n## In part\n";

#[test]
fn tests_are_found_with_their_doc_comments() {
    let text = r#"
/// Case `a-b`,
/// and more.
#[test]
fn one() {}

/// Helps.
fn helper() {}

    #[tokio::test(start_paused = true)]
    #[expect(clippy::panic, reason = "a test")]
    async fn two() -> Result<(), Error> {

        #[test]
        fn in_a_macro(
"#;
    let found: Vec<_> = tests_of(text);
    let expected = [("one", " Case `a-b`, and more."), ("two", ""), ("in_a_macro", "")];
    assert_eq!(found, expected.map(|(name, doc)| (name.to_owned(), doc.to_owned())));
}

#[test]
fn a_test_is_at_the_end_of_its_path() {
    let file = ["tests", "it", "retry"].map(str::to_owned).to_vec();
    let test = Test { file, name: "half_open_needs_a_timer".to_owned(), doc: String::new() };
    assert!(test.is_at("retry::half_open_needs_a_timer") && test.is_at("it::retry::half_open_needs_a_timer"));
    assert!(!test.is_at("timeout::half_open_needs_a_timer") && !test.is_at("retry::half_open"));
    let tests = [test];
    assert!(is_tested(&tests, "half-open-needs") && !is_tested(&tests, "half-o"));
}
