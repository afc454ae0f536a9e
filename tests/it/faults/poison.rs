//! Jobs that cannot be carried out, or whose outcome Redis refuses: they fail, and no other job is affected.

use std::fmt;

use std::time::Duration;

use heartline::testing::RedisServer;
use heartline::{App, Error, Failure, JobHandle, TaskRef, codes};
use redis::AsyncCommands;
use serde::de::{DeserializeOwned, Deserializer, Visitor};
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::faults::ground::alone;
use crate::faults::watch::{KIB, MIB, Watch, nothing_is_left, text};
use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis};

/// The longest message of a failure.
const MESSAGE: usize = 4096;

#[derive(Debug, Deserialize)]
enum Means {
    Cash,
    Cheque,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payment {
    #[expect(dead_code)]
    amount: u64,
}

/// The text of its error contains the input.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Iban;

#[derive(Debug, Deserialize)]
struct Transfer {
    #[expect(dead_code)]
    to: Iban,
}

impl TryFrom<String> for Iban {
    type Error = String;

    fn try_from(text: String) -> Result<Iban, String> {
        Err(format!("no IBAN: {text}"))
    }
}

/// The type that it expects has a name longer than any message.
#[derive(Debug)]
struct Wordy;

impl<'de> Deserialize<'de> for Wordy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Wordy, D::Error> {
        struct Words;
        impl Visitor<'_> for Words {
            type Value = Wordy;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&"ä".repeat(10_000))
            }
        }
        deserializer.deserialize_any(Words)
    }
}

/// A value that fails to serialize with a very long error.
struct Unwritable;

impl Serialize for Unwritable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("ö".repeat(10_000)))
    }
}

async fn failed<O: DeserializeOwned + fmt::Debug>(job: &JobHandle<O>) -> Failure {
    match tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end") {
        Err(Error::JobFailed(failure)) => failure,
        other => panic!("it is not failed: {other:?}"),
    }
}

/// A task whose input is an `I`, and a way to dispatch any other input to it.
fn takes<I: DeserializeOwned + Send + 'static>(app: &App, test: &TestTask, name: &str) -> TaskRef<Value, ()> {
    let name = format!("{}-{name}", test.name);
    app.task(&name, options(INTERVAL).undecodable_for(Duration::ZERO), |_, _: I| async {
        Ok::<_, heartline::JobError>(())
    })
    .unwrap();
    app.task_ref(&name).unwrap()
}

#[tokio::test]
async fn the_error_of_a_wrong_payload_does_not_show_the_payload() {
    let (redis, test) = alone();
    let app = test.app_at(&redis.url()).await;
    let number = takes::<u64>(&app, &test, "number");
    let small = takes::<u8>(&app, &test, "small");
    let letter = takes::<char>(&app, &test, "letter");
    let means = takes::<Means>(&app, &test, "means");
    let payment = takes::<Payment>(&app, &test, "payment");
    let iban = takes::<Iban>(&app, &test, "iban");
    let transfer = takes::<Transfer>(&app, &test, "transfer");
    let worker = TestWorker::start(app.worker());
    let wrong = [
        (&number, json!("card 4111-1111-1111-1111"), "u64"),
        (&number, json!("card, expected 4111"), "u64"),
        (&number, json!("card`, expected `4111` at line 7 column 7"), "u64"),
        (&small, json!(4111), "u8"),
        (&letter, json!("4111"), "character"),
        (&means, json!("card 4111"), "Cheque"),
        (&means, json!({ "card 4111": null }), "Cheque"),
        (&payment, json!({ "4111": 1 }), "amount"),
        (&payment, json!({ "amount": "4111" }), "u64"),
        (&payment, json!({}), "amount"),
        (&transfer, json!({ "to": "card 4111" }), "line"),
        (&iban, json!("card 4111"), "input"),
    ];
    let mut conn = Watch::new(&test, &redis).await.conn;
    for (task, payload, expected) in wrong {
        let job = task.dispatch(payload.clone()).await.unwrap();
        let Failure { code, message, .. } = failed(&job).await;
        assert_eq!(code, codes::CODEC, "{payload}: {message}");
        assert!(message.contains(expected), "{payload}: {message}");
        // A type that reads a whole text by itself reports no position.
        let placed = message.contains("line 1") && message.contains("column");
        assert!(placed || task.name() == iban.name(), "{payload}: {message}");
        let column: String =
            conn.hget(format!("heartline:{{{}}}:error", task.name()), job.id().as_str()).await.unwrap();
        for shown in [&message, &column] {
            assert!(!shown.contains("4111") && !shown.contains("card"), "{payload}: {shown}");
        }
    }
    worker.stop().await;
}

#[tokio::test]
async fn no_failure_message_is_longer_than_4_kib() {
    let (redis, test) = alone();
    let app = test.app_at(&redis.url()).await;
    let wordy = takes::<Wordy>(&app, &test, "wordy");
    let number = takes::<u64>(&app, &test, "number");
    let unwritable = app
        .task(&test.name, options(INTERVAL), |_, (): ()| async { Ok::<_, heartline::JobError>(Unwritable) })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    let jobs = [
        wordy.dispatch(json!(7)).await.unwrap(),
        number.dispatch(json!("x".repeat(100 * KIB))).await.unwrap(),
        app.task_ref::<(), ()>(&test.name).unwrap().handle(unwritable.dispatch(()).await.unwrap().id()).unwrap(),
    ];
    let mut conn = Watch::new(&test, &redis).await.conn;
    for job in jobs {
        let failure = failed(&job).await;
        assert_eq!(failure.code, codes::CODEC);
        assert!(failure.message.len() <= MESSAGE, "{} has {} bytes", job.task(), failure.message.len());
        // The column holds it as JSON, with the code.
        let column = format!("heartline:{{{}}}:error", job.task());
        let stored: usize =
            redis::cmd("HSTRLEN").arg(column).arg(job.id().as_str()).query_async(&mut conn).await.unwrap();
        assert!(stored <= 2 * MESSAGE, "{} keeps {stored} bytes", job.task());
    }
    worker.stop().await;
}

/// A server that accepts no value over 1 MiB: it closes the connection.
fn small_server() -> TestRedis {
    TestRedis::from_process(RedisServer::builder().arg("--proto-max-bulk-len").arg("1mb").start().unwrap())
}

#[tokio::test]
async fn a_wrong_payload_with_a_huge_error_fails_only_its_job() {
    let redis = small_server();
    let test = TestTask::on(&redis);
    let app = test.app_at(&redis.url()).await;
    let task = app
        .task(&test.name, options(INTERVAL).undecodable_for(Duration::ZERO), |_, input: u64| async move {
            Ok::<_, heartline::JobError>(input)
        })
        .unwrap();
    let wrong: TaskRef<String, u64> = test.app_at(&redis.url()).await.task_ref(&test.name).unwrap();
    // The escape of a character like this is seven times as long as the character.
    let mut jobs = Vec::new();
    for _ in 0..3 {
        jobs.push(wrong.dispatch("\u{7f}".repeat(600 * KIB)).await.unwrap());
    }
    let worker = TestWorker::start(app.worker());
    let right = task.dispatch(7).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, right.result()).await.expect("the job does not end").unwrap(), 7);
    for job in &jobs {
        assert_eq!(failed(job).await.code, codes::CODEC);
    }
    worker.stop().await;
    nothing_is_left(&test).await;
}

#[tokio::test]
async fn a_result_that_the_server_refuses_fails_only_its_job() {
    let redis = small_server();
    let test = TestTask::on(&redis);
    let app = test.app_at(&redis.url()).await;
    let task = app
        .task(&test.name, options(INTERVAL), |_, bytes: usize| async move { Ok::<_, heartline::JobError>(text(bytes)) })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    let large = task.dispatch_many([3 * MIB; 3]).await.unwrap();
    for _ in 0..5 {
        let small = task.dispatch(10).await.unwrap();
        let value = tokio::time::timeout(PATIENCE, small.result()).await.expect("a small job does not end");
        assert_eq!(value.unwrap(), text(10));
    }
    for job in &large {
        let failure = failed(job).await;
        assert_eq!((failure.code.as_str(), failure.failed_attempts), (codes::CODEC, 1), "{failure}");
    }
    assert_eq!(Watch::new(&test, &redis).await.stalls().await, 0);
    worker.stop().await;
    nothing_is_left(&test).await;
}
