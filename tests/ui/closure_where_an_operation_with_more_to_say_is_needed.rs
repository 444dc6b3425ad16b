use steadfast::{Context, Retry, try_op};

fn main() {
    let cx = Context::new();
    let _run = try_op(&cx, |_| async { Ok::<_, String>(7) }, Retry::exponential());
}
