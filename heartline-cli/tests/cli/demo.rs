//! The demo: its own server, killed workers, a page, and an account at the end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use crate::run::{Ran, alone, command};

#[test]
fn the_demo_kills_workers_and_loses_no_job() {
    crate::turn::with_cluster();
    let ran = Ran::of(command().args(["demo", "--files", "400", "--json"]).output().unwrap());
    assert_eq!(ran.status, 0, "{ran:?}");
    let verdict = ran.json();
    let of = |name: &str| verdict[name].as_u64().unwrap();
    let (dispatched, lost) = (of("dispatched"), of("lost") + of("double_recorded") + of("faults"));
    assert_eq!((of("completed") + 2, of("failed"), of("cancelled"), lost), (dispatched, 1, 1, 0), "{verdict}");
    assert!(dispatched > 50 && of("deaths") >= 2 && verdict["totals_match"] == true, "{verdict}");
}

#[test]
fn the_demo_serves_the_board_until_it_is_stopped() {
    crate::turn::with_cluster();
    let mut demo = command();
    demo.args(["demo", "--board", "--listen", "127.0.0.1:0", "--files", "100"]);
    let mut child = demo.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = told.find(|line| line.contains("http://")).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("Overview"), "{page}");
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    told.for_each(drop);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_demo_runs_only_here_and_names_what_is_missing() {
    let ran = alone(&["demo", "--board", "--listen", "0.0.0.0:0"]);
    assert!(ran.status == 2 && ran.err.contains("listen on loopback"), "{ran:?}");
    let ran = alone(&["demo", "--production", "--redis", "redis://127.0.0.1:1"]);
    assert!(ran.status == 2 && ran.err.contains("does not run in production"), "{ran:?}");
    let ran = alone(&["demo", "--cluster", "--redis", "redis://127.0.0.1:1"]);
    assert!(ran.status == 2 && ran.err.contains("cannot be combined with --redis"), "{ran:?}");
    let ran = alone(&["demo", "--files", "0"]);
    assert!(ran.status == 2 && ran.err.contains("--files must be at least 1"), "{ran:?}");
    let ran = command().arg("demo").env("PATH", "/nowhere").env_remove("HEARTLINE_REDIS_SERVER").output().unwrap();
    let told = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(1) && told.contains("apt-get install redis-server"), "{told}");
}
