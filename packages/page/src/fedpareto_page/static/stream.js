// The server's events, with another try every second where the connection was lost.

const NAMES = ["hello", "changed", "shelf", "other"];
/** Letters after which another stream takes over: a browser keeps all of the room that a stream went through, up to 2 MB. */
const LONG = 2 ** 17;

/** Calls tell(name, data) for each event, until what it gives back is called; lost has the milliseconds since. */
export function follow(tell) {
  let lostAt = null;
  let timer = null;
  let [before, stream] = [null, null];
  const open = () => {
    const own = new EventSource("/api/stream");
    let letters = 0;
    [before, stream] = [stream, own];
    for (const name of NAMES) {
      own.addEventListener(name, (event) => {
        // What the stream before has told by now is not missed, and what both tell is known.
        if (own === stream) before?.close();
        if (lostAt !== null) tell("found", {});
        lostAt = null;
        tell(name, JSON.parse(event.data));
        letters += event.data.length;
        if (letters > LONG && own === stream) open();
      });
    }
    own.onerror = () => {
      own.close();
      if (own !== stream) return;
      before?.close();
      lostAt ??= Date.now();
      tell("lost", { since: lostAt });
      clearTimeout(timer);
      timer = setTimeout(open, 1000);
    };
  };
  open();
  return () => {
    clearTimeout(timer);
    before?.close();
    stream.close();
  };
}
