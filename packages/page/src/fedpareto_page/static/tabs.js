// The one stream that all tabs share. A tab has it and tells the others: a worker would keep all that it ever heard, since
// a browser does not collect there before it holds much.

import { follow } from "./stream.js";

const NAME = "fedpareto";

/** Calls tell(name, data) for each event, whichever tab has the stream. */
export function share(tell) {
  const channel = new BroadcastChannel(NAME);
  const me = crypto.randomUUID();
  let [has, last, waiting] = [false, null, null];
  /** Whether no other tab was ever heard: each says that it came. */
  let isAlone = true;

  const heard = (name, data) => {
    if (name === "hello" || name === "lost") last = [name, data];
    // A tab that comes later is to know whether it has missed anything.
    else if (data.changes) last[1].changes = data.changes;
    if (!isAlone) channel.postMessage([name, data]);
    tell(name, data);
  };
  channel.onmessage = ({ data: [name, data, to] }) => {
    isAlone = false;
    if (name === "came") last && channel.postMessage([...last, data]);
    else if (!to || to === me) tell(name, data);
  };

  /** Has the stream from when the tab before gives it up until another one takes it. */
  const have = async (options) => {
    let end = null;
    const held = () => {
      has = true;
      end = follow(heard);
      return new Promise(() => {});
    };
    try {
      await navigator.locks.request(NAME, options, held);
    } catch {
      if (!end) return;
      end();
      [has, last] = [false, null];
      wait();
    }
  };
  const wait = () => {
    waiting = new AbortController();
    have({ signal: waiting.signal });
  };
  // A browser lets tabs that nobody sees do little, such as to try a lost server again.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || has) return;
    waiting.abort();
    have({ steal: true });
  });
  wait();
  channel.postMessage(["came", me]);
}
