use steadfast::{Context, Retry, try_do};

async fn find(id: u32) -> Option<u32> {
    Some(id)
}

fn main() {
    let cx = Context::new();
    let _run = try_do(&cx, |_| find(7), Retry::exponential());
}
