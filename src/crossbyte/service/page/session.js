// One running question at a time: whoever asks later wins, and answers to older questions are dropped.

export class Session {
  #number = 0;
  #controller = null;

  /** Begin anew; gives a signal for fetch and a test whether something newer has begun. */
  begin() {
    this.#controller?.abort();
    this.#controller = new AbortController();
    this.#number += 1;
    const mine = this.#number;
    return { signal: this.#controller.signal, isStale: () => mine !== this.#number };
  }
}

/** Call once, after nothing has come for so long. */
export function debounced(run, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...values), milliseconds);
  };
}
