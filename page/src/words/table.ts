/** Texts of tables. */
export const table = {
  checkAll: "Select all",
  check: (name: string) => `Select ${name}`,
} as const;
