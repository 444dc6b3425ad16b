use steadfast::{Context, Retry, try_do};

async fn fetch(id: u32) -> Result<u32, String> {
    Ok(id)
}

fn main() {
    let cx = Context::new();
    let _run = try_do(&cx, || fetch(7), Retry::exponential());
}
