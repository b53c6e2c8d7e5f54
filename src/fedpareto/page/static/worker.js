// The one stream that all tabs share.

import { follow } from "./stream.js";

const ports = new Set();
let last = null;

follow((name, data) => {
  if (name === "hello" || name === "lost") last = [name, data];
  // A tab that comes later is to know whether it has missed anything.
  else if (data.changes) last[1].changes = data.changes;
  for (const port of ports) port.postMessage([name, data]);
});

onconnect = ({ ports: [port] }) => {
  ports.add(port);
  port.onmessage = ({ data }) => data === "bye" && ports.delete(port);
  if (last) port.postMessage(last);
};
