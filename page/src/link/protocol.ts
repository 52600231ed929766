/** The messages of the socket. `src/setpoint/web/feed.py` defines them. */

export interface Status {
  kind?: string;
  code?: number;
  reason?: string;
  message?: string;
  details?: { causes?: { field?: string; message?: string; reason?: string }[]; [name: string]: unknown };
}

export interface Hello {
  user: string;
  version: string;
  features: string[];
  feeds: string[];
}

export interface FeedUpdate {
  set?: Record<string, unknown>;
  removed?: string[];
  log?: unknown[];
  skipped?: number;
  synced?: boolean;
}

export interface Reply<T = unknown> {
  status: number;
  headers: Record<string, string>;
  body: T;
}

export type ServerMessage =
  | ({ id: number; type: "hello" } & Hello)
  | ({ id: number; type: "update" } & FeedUpdate)
  | { id: number; type: "message"; data: unknown }
  | { id: number; type: "end"; error?: Status }
  | ({ id: number; type: "response" } & Reply);

/** An answer of the API server that is not a success, or a request that got no answer. */
export class ApiError extends Error {
  constructor(readonly status: Status) {
    super(status.message ?? status.reason ?? `the server answered ${status.code ?? "with an error"}`);
    this.name = "ApiError";
  }
  get code(): number {
    return this.status.code ?? 0;
  }
  /** Whether the server does not offer this at all, as other Kubernetes servers do not offer `/setpoint/v1`. */
  get missing(): boolean {
    return this.code === 404;
  }
  get forbidden(): boolean {
    return this.code === 403;
  }
}

export const CONNECTION_LOST: Status = {
  kind: "Status",
  code: 0,
  reason: "ConnectionLost",
  message: "The connection to the server was lost.",
};
