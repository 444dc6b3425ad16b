//! What the compiler says to common mistakes, in the user's words.
//!
//! It says less of a closure whose file has a long path. Where that makes a difference the file's name is long by itself, so that
//! it makes none where the clone lies.

#[test]
fn mistakes_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
