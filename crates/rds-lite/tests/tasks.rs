//! The calls for tasks, polled by hand: no runtime knows of them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]

mod common;

use common::{World, at};
use rds_lite::proto::{Notification, SendError};
use rds_lite::{Incoming, RecvError};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A task that counts how often it is woken.
#[derive(Default)]
struct Task(AtomicUsize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Task {
    fn poll<F: Future>(self: &Arc<Self>, future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(self));
        future.poll(&mut Context::from_waker(&waker))
    }

    fn woken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_task_receives_notifications_and_then_messages() {
    let world = World::with_hosts(2);
    let (a, b) = (world.socket(0, 5), world.socket(1, 6));
    let task = Arc::new(Task::default());
    let mut first = pin!(a.recv_async());
    assert!(task.poll(first.as_mut()).is_pending());
    b.send_to(b"message", at(1, 5)).unwrap();
    world.run(MS);
    assert_eq!(task.woken(), 1);
    a.send_to(b"taken back", at(3, 5)).unwrap();
    a.cancel(at(3, 5));
    let Poll::Ready(Ok(Incoming::Notification(note))) = task.poll(first.as_mut()) else {
        panic!("the notification comes first");
    };
    assert!(matches!(note, Notification::SendFailed { .. }));
    let mut second = pin!(a.recv_async());
    let Poll::Ready(Ok(Incoming::Message(message))) = task.poll(second.as_mut()) else {
        panic!("and then the message");
    };
    assert_eq!(&*message.payload, b"message");
    let mut third = pin!(a.recv_async());
    assert!(task.poll(third.as_mut()).is_pending());
    world.hosts[0].shut_down();
    let Poll::Ready(closed) = task.poll(third.as_mut()) else {
        panic!("nothing comes any more");
    };
    assert_eq!(closed.unwrap_err(), RecvError::Closed);
}

#[test]
fn a_task_is_told_when_a_congested_destination_takes_messages_again() {
    let world = World::with_hosts(2);
    let (a, b) = (world.socket(0, 5), world.socket(1, 6));
    b.set_receive_buffer(1000);
    let task = Arc::new(Task::default());
    assert!(matches!(
        task.poll(pin!(a.writable_async(at(2, 6)))),
        Poll::Ready(Ok(()))
    ));
    while a.try_send_to(&[0; 600], at(2, 6)).is_ok() {
        world.run(10 * MS);
    }
    let mut writable = pin!(a.writable_async(at(2, 6)));
    assert!(task.poll(writable.as_mut()).is_pending());
    world.run(100 * MS);
    assert!(task.poll(writable.as_mut()).is_pending(), "still");
    let before = task.woken();
    while b.try_recv_message().is_ok() {}
    world.run(10 * MS);
    assert!(task.woken() > before);
    assert!(matches!(task.poll(writable.as_mut()), Poll::Ready(Ok(()))));
    // Of what no waiting would change it is told at once.
    let nobody = "0.0.0.0:5".parse().unwrap();
    assert!(matches!(
        task.poll(pin!(a.writable_async(nobody))),
        Poll::Ready(Err(SendError::BadDestination(_)))
    ));
}

/// Futures that lose a race are dropped, and made anew for the next.
#[test]
fn a_dropped_future_leaves_no_waker_behind() {
    let world = World::with_hosts(1);
    let socket = world.socket(0, 5);
    socket.set_send_buffer(10);
    socket.try_send_to(&[0; 10], at(2, 6)).unwrap();
    for _ in 0..10 {
        let task = Arc::new(Task::default());
        {
            let mut futures = (
                pin!(socket.recv_async()),
                pin!(socket.recv_message_async()),
                pin!(socket.writable_async(at(2, 6))),
                pin!(socket.send_async("x".into(), at(2, 6))),
            );
            for _ in 0..3 {
                assert!(task.poll(futures.0.as_mut()).is_pending());
                assert!(task.poll(futures.1.as_mut()).is_pending());
                assert!(task.poll(futures.2.as_mut()).is_pending());
                assert!(task.poll(futures.3.as_mut()).is_pending());
            }
            assert_eq!(Arc::strong_count(&task), 5, "one for each");
        }
        assert_eq!(Arc::strong_count(&task), 1);
    }
    // One that waits is woken all the same when another of its task is gone.
    let task = Arc::new(Task::default());
    let mut stays = pin!(socket.recv_message_async());
    assert!(task.poll(stays.as_mut()).is_pending());
    {
        let mut goes = pin!(socket.recv_message_async());
        assert!(task.poll(goes.as_mut()).is_pending());
    }
    socket.cancel(at(2, 6));
    socket.try_send_to(b"self", at(1, 5)).unwrap();
    assert!(task.woken() > 0);
    assert!(task.poll(stays.as_mut()).is_ready());
}
