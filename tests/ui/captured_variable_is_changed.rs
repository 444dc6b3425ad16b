use steadfast::{Context, Retry, try_do};

fn main() {
    let cx = Context::new();
    let mut calls = 0;
    let _run = try_do(
        &cx,
        |_| {
            calls += 1;
            async { Ok::<_, String>(()) }
        },
        Retry::exponential(),
    );
}
