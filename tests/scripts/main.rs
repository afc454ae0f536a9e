//! Every script by itself: given keys and arguments, the reply and all keys after; each refusal; a wrong token; run twice.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod announce;
mod aside;
mod audited;
// Some of it is for the other crates that call scripts by hand.
#[allow(dead_code)]
mod call;
mod cancel;
mod claimed;
mod close;
mod counts;
mod declare;
mod dispatch;
mod ended;
mod enlist;
mod expire;
mod extend_locks;
mod flow;
mod flow_advance;
mod flow_audit;
mod flow_children;
mod flow_control;
mod flow_deadlines;
mod flow_enter;
mod flow_list;
mod flow_look;
mod flow_nodes;
mod flow_open;
mod flow_pause;
mod flow_place;
mod flow_put_off;
mod flow_resend;
mod flow_retry;
mod flow_stage;
mod flow_start;
mod flow_state;
mod flow_told;
mod flow_trim;
mod flow_turn;
mod flow_unstage;
mod flow_visit;
mod foreign;
mod forget;
mod ghosts;
mod history;
mod hooks;
mod inspect;
mod jobs;
mod look;
mod maxmemory;
mod mend;
mod note;
mod overview;
mod partitions;
mod pause;
mod reconcile;
mod remove;
mod resume;
mod retry;
mod rights;
mod run_now;
mod scan;
mod settle;
mod shrink;
mod states;
mod sweep;
mod take_name;
mod trim;
