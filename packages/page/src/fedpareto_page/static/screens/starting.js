// What both the form and a run's page do after they have started a process.

import { json } from "../source.js";

/** Waits until a run has begun: null, or why it could not. */
export async function begun(id) {
  for (;;) {
    const { state, message } = await json(`/api/jobs/${id}`);
    if (state !== "beginning") return message;
  }
}
