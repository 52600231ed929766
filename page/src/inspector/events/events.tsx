import type { TabProps } from "../catalog";
import { Notice } from "../../ui/notice";

export default function Events({ target }: TabProps) {
  return <Notice title={target.name} small />;
}
