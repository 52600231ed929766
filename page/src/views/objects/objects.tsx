import { Notice } from "../../ui/notice";

export default function Objects() {
  return <Notice title="Objects" />;
}
