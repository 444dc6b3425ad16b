//! Smoke.
use std::time::Duration;
use steadfast::{Clock, Context, Executor, Retry, Timeout, op, try_do};
#[test]
fn works() {
    let clock = Clock::manual();
    let out = clock.block_on(async {
        let cx = Context::new().with_clock(&clock);
        try_do(
            &cx,
            |a| async move { if a.number() < 3 { Err("x") } else { Ok(1) } },
            (Retry::exponential(), Timeout::secs(2)),
        )
        .await
    });
    assert_eq!(out.unwrap(), 1);
    let ex = Executor::builder("b")
        .policies((Retry::exponential(), Timeout::secs(2)))
        .clock(&clock)
        .build()
        .unwrap();
    clock.block_on(async {
        let e = ex
            .run(|_| std::future::pending::<Result<(), String>>())
            .await
            .unwrap_err();
        println!("{e} {e:?}");
        let r = ex
            .run_report(
                &ex.context(),
                op(|a| async move { if a.number() < 3 { Err("x") } else { Ok(a.number()) } }),
            )
            .await;
        println!("{r:?}");
        let e2 = ex.erase();
        let r = e2.run(|_| async { Err::<(), _>(String::from("bad")) }).await;
        println!("{r:?}");
        assert_eq!(r.unwrap_err().last().unwrap(), "bad");
    });
    assert_eq!(clock.sleepers(), 0);
    fn send<T: Send>(t: T) -> T {
        t
    }
    let fut = send(ex.run(|_| async { Ok::<_, ()>(1u32) }));
    println!("size retry+timeout {}", std::mem::size_of_val(&fut));
    let cx = Context::new();
    println!(
        "try_do size {}",
        std::mem::size_of_val(&try_do(
            &cx,
            |_| async { Ok::<_, ()>(1u32) },
            (Retry::exponential(), Timeout::secs(2))
        ))
    );
    println!(
        "() {}",
        std::mem::size_of_val(&try_do(&cx, |_| async { Ok::<_, ()>(1u32) }, ()))
    );
    println!(
        "timeout {}",
        std::mem::size_of_val(&try_do(&cx, |_| async { Ok::<_, ()>(1u32) }, &Timeout::secs(2)))
    );
    let _ = Duration::ZERO;
}
