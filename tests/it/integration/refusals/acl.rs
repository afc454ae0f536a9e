//! The least rights of docs/acl.md suffice for everything, and each of them is used.

use crate::support::TestRedis;
use heartline::{App, Context, Error, JobError, TaskOptions};
use std::time::Duration;

/// The words of the rule after the name and the password.
fn rule() -> Vec<String> {
    let text = include_str!("../../../../docs/acl.md");
    let (_, rest) = text.split_once("ACL SETUSER jobs on >secret ").unwrap();
    let (rule, _) = rest.split_once("```").unwrap();
    rule.split_whitespace().map(str::to_owned).collect()
}

async fn set_user(redis: &TestRedis, words: &[String]) {
    let mut acl = redis::cmd("ACL");
    acl.arg("SETUSER").arg("jobs").arg("reset").arg("on").arg(">secret").arg(words);
    let () = acl.query_async(&mut redis.conn().await).await.unwrap();
}

#[tokio::test]
async fn a_missing_right_is_named_and_is_not_an_unreachable_server() {
    let redis = TestRedis::start();
    let words: Vec<String> = rule().into_iter().filter(|word| word != "+info").collect();
    set_user(&redis, &words).await;
    let url = redis.url().replace("redis://", "redis://jobs:secret@");
    let began = std::time::Instant::now();
    let lazy = App::builder().redis(&url).lazy().build().await.unwrap();
    lazy.task("t", TaskOptions::new(), |_: Context, _: u8| async { Ok::<_, JobError>(()) }).unwrap();
    for error in [App::builder().redis(&url).build().await.unwrap_err(), lazy.worker().run().await.unwrap_err()] {
        assert!(matches!(error, Error::Denied { .. }) && !error.is_retryable(), "{error:?}");
        let text = format!("{:#}", anyhow::Error::new(error)).to_lowercase();
        assert!(
            text.contains("info") && text.contains("denied permission") && !text.contains("cannot reach"),
            "{text}"
        );
    }
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// The commands that the sources of the crate use.
#[test]
fn every_documented_right_is_used_by_the_sources() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = String::new();
    for directory in ["lua", "lua/lib", "src/backend", "src/testing", "src"] {
        for file in std::fs::read_dir(root.join(directory)).unwrap().map(|entry| entry.unwrap().path()) {
            if file.is_file() {
                sources += &std::fs::read_to_string(file).unwrap().to_lowercase();
            }
        }
    }
    for right in rule().iter().filter_map(|word| word.strip_prefix('+')) {
        let words: Vec<&str> = right.split('|').collect();
        let used = words.iter().all(|word| {
            [format!("'{word}'"), format!("\"{word}\""), format!(".{word}(")].iter().any(|form| sources.contains(form))
        });
        assert!(used, "nothing uses {right}");
    }
}

/// The reverse: no test may ever send a rare command.
#[test]
fn every_command_of_a_script_is_in_the_documented_rights() {
    let rights = rule();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut commands = std::collections::BTreeSet::new();
    for directory in ["lua", "lua/lib"] {
        for file in std::fs::read_dir(root.join(directory)).unwrap().map(|entry| entry.unwrap().path()) {
            let text = if file.is_file() { std::fs::read_to_string(&file).unwrap() } else { String::new() };
            let calls = text.split("call('").skip(1).filter_map(|rest| rest.split_once('\''));
            commands.extend(calls.map(|(command, _)| command.to_lowercase()));
        }
    }
    // docs/guide/engines.md lists what a cluster needs in addition.
    commands.remove("spublish");
    assert!(commands.len() > 30, "{commands:?}");
    let missing: Vec<&String> = commands.iter().filter(|command| !rights.contains(&format!("+{command}"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
