// The one stream that all tabs share.

import { follow } from "./stream.js";

const ports = new Set();
let last = null;

follow((name, data) => {
  if (name === "hello" || name === "lost") last = [name, data];
  for (const port of ports) port.postMessage([name, data]);
});

onconnect = ({ ports: [port] }) => {
  ports.add(port);
  port.onmessage = ({ data }) => data === "bye" && ports.delete(port);
  if (last) port.postMessage(last);
};
