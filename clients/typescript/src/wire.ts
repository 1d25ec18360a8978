// What goes over the wire, as internal/api/openapi.yaml of Drossel describes it.

/** What is known of a request, beside what is asked. */
export interface Facts {
  /** The Host of the request; routes with a host need it. */
  host?: string;
  /** As it was sent, without the question mark. It may follow the path instead. */
  query?: string;
  /** The address of the client. Limits by address need it. */
  ip?: string;
  /** Header fields that the policy reads, such as header.x-api-key. */
  headers?: Record<string, string | string[]>;
  /** Attributes of the policy, verified by you: they win over what the request says. "" says that there is none. */
  attributes?: Record<string, string>;
}

/** A request, or a limit of the policy by its name. */
export type Subject =
  | (Facts & { method: string; path: string; limit?: undefined; cost?: undefined })
  | (Facts & { limit: string; cost?: number; method?: string; path?: string });

export interface DecideOptions {
  /** Decide and charge nothing. */
  peek?: boolean;
  /** The caller will settle, with what the request turns out to have cost. */
  settle?: boolean;
  /** Made up by the caller, one for each question: asked again, it gets the same answer and is charged once. */
  idempotency_id?: string;
}

export type Question = Subject & DecideOptions;

/** Requests that are decided as one: all are charged, or none. */
export type Together = { together: true; requests: Subject[] } & DecideOptions;

export interface Answer {
  /** Names the decision, here and in the log of Drossel. */
  id: string;
  allowed: boolean;
  /** 200 if allowed, else what the client is to be sent. */
  status: number;
  code?: "RATE_LIMITED" | "QUOTA_EXCEEDED" | "TOO_MANY_IN_FLIGHT" | "OVERLOADED" | "RATE_LIMITER_UNAVAILABLE";
  /** The pattern of the route that matched. */
  route?: string;
  class?: string;
  /** The limit that denies, or is nearest to denying. */
  limit?: string;
  /** Of a denial, in milliseconds; absent if no wait will do. */
  retry_after_ms?: number;
  /** Hold the request for so many milliseconds, then let it go. */
  delay_ms?: number;
  /** The decision is held for so many milliseconds for settle and renew. */
  settle_within_ms?: number;
  /** A request that holds a place in flight renews it so often, in milliseconds. */
  renew_every_ms?: number;
  /** Who decided; open and closed: nobody could tell. */
  by: "store" | "lease" | "denial_memory" | "local" | "open" | "closed";
  /** Header fields for the client. */
  headers: Record<string, string>;
  /** Of a denial: the body for the client, of the type in headers. */
  body?: unknown;
  limits: LimitAnswer[];
}

export interface LimitAnswer {
  name: string;
  /** The names of the attributes that it counts by. */
  key?: string;
  allowed: boolean;
  /** Counted and never denying. */
  shadow?: boolean;
  cost: number;
  remaining: number;
  retry_after_ms?: number;
  reset_after_ms?: number;
  /** Of requests that are together: which of them. */
  requests?: number[];
}

/** How an allowed request ended. */
export interface Outcome {
  /** Of the response: a limit with charge_on keeps its charge for the statuses that it lists. */
  status?: number;
  /** What it cost the only limit of the decision. */
  cost?: number;
  /** The same by the names of limits. */
  costs?: Record<string, number>;
  /** It was given up before anything was done for it: all charges go back. */
  unserved?: boolean;
}
