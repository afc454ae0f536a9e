//! The demo: its own server, workers that are killed, a page, and an account at the end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use crate::run::{alone, command};

#[test]
fn it_shows_a_page_kills_a_worker_and_loses_nothing() {
    let mut demo = command();
    demo.args(["demo", "--listen", "127.0.0.1:0", "--for", "7s", "--json"]);
    let mut child = demo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = told.find(|line| line.contains("http://")).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("Tasks"), "{page}");
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let verdict: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    let of = |name: &str| verdict[name].as_u64().unwrap();
    assert!(of("dispatched") >= 7 * 6 && of("deaths") >= 1, "{verdict}");
    assert_eq!((of("ended"), of("unfinished"), of("lost"), of("faults")), (of("dispatched"), 0, 0, 0), "{verdict}");
}

#[test]
fn it_is_for_this_machine_and_says_what_is_missing() {
    let ran = alone(&["demo", "--listen", "0.0.0.0:0"]);
    assert!(ran.status == 2 && ran.err.contains("this machine alone"), "{ran:?}");
    let ran = command().arg("demo").env("PATH", "/nowhere").env_remove("HEARTLINE_REDIS_SERVER").output().unwrap();
    let told = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(1) && told.contains("apt-get install redis-server"), "{told}");
}
