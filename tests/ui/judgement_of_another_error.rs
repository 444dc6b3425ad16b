use steadfast::judge::retry_if;
use steadfast::{Context, Retry, try_do};

fn main() {
    let cx = Context::new();
    let policies = (Retry::exponential(), retry_if(|status: &u16| *status >= 500));
    let _run = try_do(&cx, |_| async { Ok::<_, String>(7) }, policies);
}
