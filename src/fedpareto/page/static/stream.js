// The server's events, with another try every second where the connection was lost.

const NAMES = ["hello", "changed", "shelf", "other"];

/** Calls tell(name, data) for each event, until what it gives back is called; lost has the milliseconds since. */
export function follow(tell) {
  let lostAt = null;
  let timer = null;
  let stream = null;
  const open = () => {
    stream = new EventSource("/api/stream");
    for (const name of NAMES) {
      stream.addEventListener(name, (event) => {
        if (lostAt !== null) tell("found", {});
        lostAt = null;
        tell(name, JSON.parse(event.data));
      });
    }
    stream.onerror = () => {
      stream.close();
      lostAt ??= Date.now();
      tell("lost", { since: lostAt });
      clearTimeout(timer);
      timer = setTimeout(open, 1000);
    };
  };
  open();
  return () => {
    clearTimeout(timer);
    stream.close();
  };
}
