use std::time::Duration;

use steadfast::{Context, Retry, try_do};

fn main() {
    let cx = Context::new();
    let _run = try_do(&cx, |_| async { Ok::<_, String>(7) }, (Retry::exponential(), Duration::from_secs(2)));
}
