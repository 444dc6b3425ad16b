//! What the compiler says to common mistakes, in the user's words.

#[test]
fn mistakes_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
