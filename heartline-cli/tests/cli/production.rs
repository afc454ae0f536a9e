//! Which commands need a confirmation in production.

use crate::run::{Bench, ran};

#[tokio::test]
async fn production_asks_before_actions_on_single_jobs_too() {
    let bench = Bench::new().await;
    for id in ["a", "b", "c"] {
        bench.export.dispatch("x".into()).id(id).await.unwrap();
    }
    let production = async |args: &[&str]| {
        let mut command = bench.command(args);
        command.env("HEARTLINE_PRODUCTION", "1");
        ran(command).await
    };
    for act in [
        &["jobs", "cancel", "-t", "export", "a"][..],
        &["jobs", "remove", "-t", "export", "a"],
        &["recover", "running", "-t", "export", "a"],
        &["task", "purge", "export", "--state", "waiting"],
    ] {
        let refused = production(act).await;
        assert!(refused.status == 2 && refused.err.contains("in production; pass --yes"), "{act:?}: {refused:?}");
    }
    assert_eq!(bench.export.counts().await.unwrap().waiting, 3);
    production(&["jobs", "cancel", "-t", "export", "a", "--yes"]).await.ok();
    assert_eq!(bench.export.counts().await.unwrap().waiting, 2);
    // A read asks nothing, and names the server.
    let read = production(&["tasks"]).await;
    assert!(read.status == 0 && read.err.contains("production: redis://"), "{read:?}");
    // Outside production an action on one job needs no confirmation.
    for off in ["", "0", "false"] {
        let id = bench.export.dispatch("x".into()).await.unwrap().id().to_string();
        let mut command = bench.command(&["jobs", "cancel", "-t", "export", &id]);
        command.env("HEARTLINE_PRODUCTION", off);
        ran(command).await.ok();
    }
}

#[tokio::test]
async fn production_asks_a_person_to_type_the_word() {
    let bench = Bench::new().await;
    for id in ["a", "b"] {
        bench.export.dispatch("x".into()).id(id).await.unwrap();
    }
    let mut refused = bench.on_terminal("--production jobs cancel -t export a");
    refused.until("Type production to continue").await;
    refused.say("y\n");
    refused.until("nothing was done").await;
    let mut done = bench.on_terminal("--production jobs cancel -t export b");
    done.until("Type production to continue").await;
    done.say("production\n");
    crate::run::until("one job is cancelled", async || bench.export.counts().await.unwrap().waiting == 1).await;
}

#[tokio::test]
async fn the_url_option_takes_precedence_over_the_variables() {
    let bench = Bench::new().await;
    bench.export.dispatch("x".into()).await.unwrap();
    let (own, nowhere) = (bench.url(), "redis://127.0.0.1:1");
    for (option, heartline_url, redis_url) in
        [(Some(&*own), Some(nowhere), Some(nowhere)), (None, Some(&*own), Some(nowhere)), (None, None, Some(&*own))]
    {
        let mut command = bench.command(&["tasks"]);
        command.env_remove("HEARTLINE_URL").args(option.into_iter().flat_map(|url| ["--redis", url]));
        command.envs(heartline_url.map(|url| ("HEARTLINE_URL", url))).envs(redis_url.map(|url| ("REDIS_URL", url)));
        assert!(ran(command).await.ok().contains("export"));
    }
}
