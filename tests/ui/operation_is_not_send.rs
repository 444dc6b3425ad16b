use std::rc::Rc;

use steadfast::{Context, Retry, try_do};

fn main() {
    let cx = Context::new();
    let operation = |_| async {
        let shared = Rc::new(7);
        std::future::ready(()).await;
        Ok::<_, String>(*shared)
    };
    let _run = try_do(&cx, operation, Retry::exponential());
}
